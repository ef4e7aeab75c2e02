"""The listening socket: opened before anything slow happens, so that a taken port is reported at once."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from collections.abc import Iterator


class ListenError(Exception):
    """The address cannot be listened on; the message names it and what to do."""


PORT = "--port or SIE_HTTP_PORT"
BACKLOG = 2048
"""How many connections the system holds until they are accepted, during the start too."""


def listen(host: str, port: int, *, share: bool = False, chosen_by: str = PORT) -> socket.socket:
    """Listen on a TCP port; port 0 takes a free one.

    Args:
        host: A name or an address of this machine.
        port: The port.
        share: Whether other processes that share too may listen on the same port; the system spreads the connections
            among them (`SO_REUSEPORT`).
        chosen_by: What the port is chosen by, for the error.

    Raises:
        ListenError: The address is taken, forbidden or none of this machine's, or ports cannot be shared here.
    """
    if share and not hasattr(socket, "SO_REUSEPORT"):
        raise ListenError(f"Cannot share {host}:{port}: this system has no SO_REUSEPORT. Run one process.")
    return _open(host, port, chosen_by, share=share, backlog=BACKLOG)


@contextlib.contextmanager
def reserve(host: str, port: int, *, chosen_by: str = PORT) -> Iterator[tuple[str, int]]:
    """Keep a TCP port during the block for programs that this process starts; port 0 takes a free one.

    On Linux the port is bound and not listened on: `listen` takes it in another process, as often as that is started,
    and the system chooses it for nobody else. On other systems it is only known to have been free.

    Yields:
        The URL a client on this machine uses, and the port.

    Raises:
        ListenError: As `listen`.
    """
    with _open(host, port, chosen_by) as holder:
        reserved = url_of(holder), holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield reserved


def _open(host: str, port: int, chosen_by: str, *, share: bool = False, backlog: int | None = None) -> socket.socket:
    """Bind a port, and listen on it where there is a backlog."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name like localhost has both kinds of address, and more clients try the IPv4 one.
        family, kind, protocol, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if share:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            opened.bind(address)
            if backlog is not None:
                opened.listen(backlog)
        except OSError:
            opened.close()
            raise
    except (OSError, UnicodeError) as error:  # the latter for a name that is none, as `a..b`
        raise ListenError(f"Cannot listen on {host}:{port}: {_reason(error, chosen_by)}") from None
    return opened


def address_of(listener: socket.socket) -> str:
    """Write the listening address as a URL; `0.0.0.0` and `::` stand for every address of the machine."""
    return url_at(*listener.getsockname()[:2])


def url_at(host: str, port: int) -> str:
    """Write a URL of an address, IPv6 or not."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def url_of(listener: socket.socket) -> str:
    """Write the URL a client on this machine uses."""
    return address_of(listener).replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _reason(error: OSError | UnicodeError, chosen_by: str) -> str:
    if isinstance(error, UnicodeError):
        return "that is no name of a host. --host or SIE_HTTP_HOST must be an address of this machine."
    if error.errno == errno.EADDRINUSE:
        return f"another process has that port. Choose another with {chosen_by}, or 0 for a free one."
    if error.errno == errno.EACCES:
        return f"the system does not allow it. Choose a port above 1023 with {chosen_by}."
    return f"{error.strerror or error}. --host or SIE_HTTP_HOST must be an address of this machine."

"""The socket that an adapter process listens on: its owner's alone, and never taken from a process that lives."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from pathlib import Path

from sie_core.serving.listening import ListenError

_CREDENTIALS = struct.Struct("iII")
"""Linux' `struct ucred`: process, user, group."""


def listen_on(path: Path) -> socket.socket:
    """Listen on a Unix socket that only this user may connect to. A socket that a dead process left is replaced.

    Raises:
        ListenError: A process listens there, something else is there, or the folder does not take it.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead(path)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(64)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ListenError(f"Cannot listen on {path}: {error.strerror or error}. Set SIE_IPC_SOCKET_PATH.") from None
    except ListenError:
        listener.close()
        raise
    return listener


def is_own_user(connected: socket.socket) -> bool:
    """Whether the process at the other end runs as this user, or as root; True where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    with socket.socket(fileno=os.dup(connected.fileno())) as own:
        _, user, _ = _CREDENTIALS.unpack(own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return user in (0, os.geteuid())


def _remove_dead(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ListenError(
                f"Cannot listen on {path}: there is something that is no socket. Set SIE_IPC_SOCKET_PATH."
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            # A process that stands still, and has no room for more connections, is not dead.
            probe.setblocking(False)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
                return
            except BlockingIOError:
                pass
        raise ListenError(f"Cannot listen on {path}: another adapter process does. Set SIE_IPC_SOCKET_PATH.")

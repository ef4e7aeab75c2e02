"""The URL by which programs on other machines reach this one."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from sie_core.serving.listening import url_at, url_of


def own_url(listener: socket.socket) -> str:
    """Write the URL of a listener; of one that listens on every address, with the address that its host's name has.

    That is a pod's or container's own address. Without one it is that for clients on this machine.
    """
    host, port = listener.getsockname()[:2]
    if not ip_address(host).is_unspecified:
        return url_of(listener)
    try:
        found = socket.getaddrinfo(socket.gethostname(), port, listener.family, socket.SOCK_STREAM)
    except OSError:
        return url_of(listener)
    own = str(found[0][4][0])
    return url_of(listener) if ip_address(own).is_loopback else url_at(own, port)

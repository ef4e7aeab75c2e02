"""Decides which web pages may call the server, and under which host names.

A browser lets any page send requests to a server on the same machine, and a page whose own host name is pointed there
(DNS rebinding) may read the answers. `Origin` names the page, `Host` the name that it called.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from starlette.responses import Response

from sie_core.api.request import RequestHeaders
from sie_core.contracts import InferenceError
from sie_core.settings import Settings

ANY: Final = "*"
LOOPBACK_NAMES: Final = ("localhost", "*.localhost", "host.docker.internal", "host.containers.internal")
"""Names of a machine for itself and for its containers; no page on the internet can have one."""
MAX_AGE_S: Final = 600
"""Seconds for which a browser may cache a preflight."""
_REMEMBERED: Final = 256
"""Values of `Host` of which it is remembered whether they name this server."""
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}

RawHeaders = list[tuple[bytes, bytes]]


class Browsers:
    """Decides by `Host` and `Origin` whether a request is accepted.

    Args:
        origins: Origins of pages that may call beside the server's own, as `https://app.example.com`; `*` for any.
        hosts: Names of the server beside its addresses, as `sie.example.com`, `*.example.com` or `*`.
    """

    def __init__(self, origins: Sequence[str] = (), hosts: Sequence[str] = (ANY,)) -> None:
        self._origins = frozenset(origins)
        self._hosts = frozenset(hosts)
        self._knows = lru_cache(_REMEMBERED)(self._known)

    def check(self, headers: RequestHeaders) -> None:
        """Refuse a request of a page that may not call, or under a name that is not this server's.

        Raises:
            InferenceError: `FORBIDDEN`, naming the header, its value and the setting.
        """
        host, origin = headers.get("host", ""), headers.get("origin")
        if ANY not in self._hosts and not all(map(self._knows, headers.getlist("host"))):
            raise InferenceError(
                "FORBIDDEN",
                f"Host is {host[:100]!r}, and this server does not go by that name; SIE_ALLOWED_HOSTS may add it.",
                param="Host",
            )
        if origin is not None and not self._allowed(origin) and not _is_own(origin, host):
            raise InferenceError(
                "FORBIDDEN",
                f"Origin is {origin[:100]!r}, and web pages from there may not call this server; SIE_CORS_ORIGINS "
                "may add it.",
                param="Origin",
            )

    def preflight(self, headers: RequestHeaders) -> Response | None:
        """Answer a browser's preflight; None where an `OPTIONS` is none."""
        if "origin" not in headers or "access-control-request-method" not in headers:
            return None
        answer = {"Access-Control-Allow-Methods": "GET, HEAD, POST", "Access-Control-Max-Age": str(MAX_AGE_S)}
        if wanted := headers.get("access-control-request-headers"):
            answer["Access-Control-Allow-Headers"] = wanted
        if "access-control-request-private-network" in headers:
            answer["Access-Control-Allow-Private-Network"] = "true"
        return Response(status_code=204, headers=answer)

    def reply_headers(self, headers: RequestHeaders) -> RawHeaders:
        """Make the headers by which a browser lets a page read the reply; none where the page may not."""
        if not self._origins:
            return []
        origin = headers.get("origin", "")
        if not self._allowed(origin):
            return [(b"vary", b"Origin")]
        named = ANY if ANY in self._origins else origin
        return [
            (b"access-control-allow-origin", named.encode("latin-1")),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"Origin"),
        ]

    def _allowed(self, origin: str) -> bool:
        return ANY in self._origins or origin.lower() in self._origins

    def _known(self, host: str) -> bool:
        """Whether a value of `Host` names this server; an address always does: no page can make one point here."""
        name = _without_port(host.lower()).removesuffix(".")
        if not name or name in self._hosts or _is_address(name):
            return True
        return any(f"*{name[dot:]}" in self._hosts for dot, letter in enumerate(name) if letter == ".")


def allowed_hosts(settings: Settings, address: str) -> tuple[str, ...]:
    """List the host names of a server that listens on `address`.

    A server on loopback knows them all. Any other may be reached under names that only the operator knows (a service,
    a published port, a proxy), so that every name is accepted until `SIE_ALLOWED_HOSTS` lists some.
    """
    if not settings.allowed_hosts and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return (ANY,)
    return (*LOOPBACK_NAMES, settings.http_host.lower(), *settings.allowed_hosts)


def _is_own(origin: str, host: str) -> bool:
    """Whether a page came from the server it calls; a proxy in between may have terminated TLS."""
    scheme, _, place = origin.lower().partition("://")
    port = _DEFAULT_PORTS.get(scheme)
    return bool(place) and bool(host) and place.removesuffix(f":{port}") == host.lower().removesuffix(f":{port}")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() and not name.endswith(":") else host).strip("[]")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

"""Identifies the clients of a server, however many connections each opens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Protocol

from sie_core.auth import given_tokens
from sie_core.settings import Settings

_REMEMBERED: Final = 4096
"""Addresses whose clients are remembered; the longest unused is forgotten first."""
_SITE_BITS: Final = 64
"""Prefix bits of an IPv6 address that identify a site; a site chooses the rest itself, anew for each connection."""

Address = IPv4Address | IPv6Address


class Headers(Protocol):
    """The headers of a request."""

    def getlist(self, name: str, /) -> list[str]:
        """Return every value of a header, by its name in lower case."""
        ...


class Callers:
    """Names the client of each request.

    Args:
        trusted: Networks of proxies whose `X-Forwarded-For` is believed, as CIDR.
        by_token: Whether clients need tokens; the token of a request is known to be right then.
    """

    def __init__(self, trusted: Sequence[str] = (), *, by_token: bool = False) -> None:
        self._trusted = [ip_network(each) for each in trusted]
        self._by_token = by_token
        self._named = lru_cache(_REMEMBERED)(self._name)

    @classmethod
    def of(cls, settings: Settings) -> Callers:
        """Take the rule of the settings."""
        return cls(settings.trusted_proxies, by_token=settings.auth_mode != "none")

    def client(self, peer: str | None, headers: Headers) -> str:
        """Return the identity of a request's sender: its token's id, else its address.

        Args:
            peer: Address of the connection; None if it has none.
            headers: Headers of the request.
        """
        if self._by_token and (given := given_tokens(headers.getlist("authorization"))) and given[0]:
            return f"token {hashlib.sha256(given[0].encode('latin-1', 'replace')).hexdigest()[:16]}"
        forwarded = ",".join(headers.getlist("x-forwarded-for")) if self._trusted else ""
        return self._name(peer, forwarded) if forwarded else self._named(peer)  # a header may be long: none is kept

    def _name(self, peer: str | None, forwarded: str = "") -> str:
        address = _read(peer or "")
        if address is None:
            return "address unknown"
        # Each proxy appends its peer's address; anything left of an untrusted address may be forged.
        for told in reversed(forwarded.split(",")):
            if not self._is_trusted(address) or (before := _read(told)) is None:
                break
            address = before
        if isinstance(address, IPv6Address):
            return f"address {IPv6Network((address, _SITE_BITS), strict=False)}"
        return f"address {address}"

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def _read(text: str) -> Address | None:
    """Read an address, as proxies write it: perhaps in brackets, and with a port."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address

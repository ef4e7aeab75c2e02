"""Which server a client talks to and with which key: arguments over the environment.

The SDK reads the environment here and nowhere else.
"""

from __future__ import annotations

import os
import re
from urllib.parse import SplitResult, urlsplit

from sie_sdk._requests.headers import checked


def resolve_base_url(base_url: str | None) -> str:
    """Return the server's address without a trailing slash: the argument, else `SIE_BASE_URL`.

    Raises:
        ValueError: Neither is given, or it is not an absolute http or https address.
    """
    url = base_url or os.environ.get("SIE_BASE_URL")
    if not url:
        raise ValueError("no server is named: pass base_url, e.g. 'http://localhost:8080', or set SIE_BASE_URL")
    _origin(url)
    return url.rstrip("/")


def resolve_api_key(api_key: str | None, base_url: str) -> str | None:
    """Return the bearer key: the argument, else `SIE_API_KEY`; an empty argument means none.

    The variable's key is for the server `SIE_BASE_URL` names and goes to no other.

    Raises:
        ValueError: No HTTP header can carry the key.
        TypeError: The argument is no string.
    """
    if api_key is not None:
        return checked("api_key", api_key) or None
    configured = os.environ.get("SIE_BASE_URL")
    if not configured or _origin(configured) != _origin(base_url):
        return None
    return checked("SIE_API_KEY", os.environ.get("SIE_API_KEY", "")) or None


def shown(url: str) -> str:
    """Return an address as messages and logs show it: without a user's name and password.

    A password may hold `/`, `?` and `#` unescaped, so all up to the last `@` is left out.
    """
    return re.sub(r"//.*@", "//…@", url, count=1, flags=re.DOTALL)


def _origin(url: str) -> tuple[str, str, int]:
    parts: SplitResult | None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts = port = None
    if parts is None:  # raised here, as the other error quotes what may be a password and would be this one's context
        message = f"the server's address {shown(url)!r} is malformed: check its port and its brackets"
        raise ValueError(f"{message}; write '/', '?' and '#' of a password as %2F, %3F and %23")
    if re.search(r"[\x00-\x20\x7f]", url):
        raise ValueError(f"the server's address {shown(url)!r} holds a blank or a line break; leave it out")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the server's address {shown(url)!r} is not absolute; write e.g. 'http://localhost:8080'")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)

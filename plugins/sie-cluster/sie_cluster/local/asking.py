"""Asks a program of a cluster on this machine over HTTP."""

from __future__ import annotations

from http.client import HTTPException
from urllib.request import ProxyHandler, Request, build_opener

_direct = build_opener(ProxyHandler({}))
"""A proxy that the environment names does not lead to this machine."""


def ask(url: str, timeout_s: float, token: str | None = None) -> bytes | None:
    """Return the body of its answer to a GET; None where it gives none, or not the whole of it."""
    request = Request(url, headers={} if token is None else {"Authorization": f"Bearer {token}"})
    try:
        with _direct.open(request, timeout=timeout_s) as reply:
            told: bytes = reply.read()
            return told
    except (OSError, HTTPException):
        return None

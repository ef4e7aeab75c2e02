"""What both shells need of httpx: timeouts, limits, answers and failures in the protocol's words.

It decides no retry: it only says how far a failed exchange got.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final

import httpcore
import httpx

from sie_sdk._calls.exchange import Response, Send, TransportFailure
from sie_sdk.errors import SIEConnectionError

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 150.0
MAX_CONNECTIONS = 100

# Shorter than the five seconds common servers keep an idle connection: a pooled one is never found closed.
_KEEPALIVE_S = 4.0


def timeouts(timeout_s: float | None, connect_timeout_s: float | None, read_timeout_s: float | None) -> httpx.Timeout:
    """Return the timeouts of one attempt; `timeout_s` stands for the connect and read timeouts not given."""
    connect = _first(connect_timeout_s, timeout_s, CONNECT_TIMEOUT_S)
    read = _first(read_timeout_s, timeout_s, READ_TIMEOUT_S)
    return httpx.Timeout(connect=connect, read=read, write=read, pool=connect)


def timeouts_of(send: Send, default: httpx.Timeout) -> httpx.Timeout:
    """Return the timeouts of an attempt: the request's own, else those of its client."""
    return default if send.timeout_s is None else timeouts(send.timeout_s, None, None)


def settings(max_connections: int | None) -> dict[str, Any]:
    """Return the arguments of a new httpx client."""
    connections = MAX_CONNECTIONS if max_connections is None else max_connections
    limits = httpx.Limits(
        max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=_KEEPALIVE_S
    )
    return {"limits": limits, "follow_redirects": False}


def response(answer: httpx.Response) -> Response:
    """Return a read answer in the protocol's words."""
    return Response(answer.status_code, dict(answer.headers), answer.content)


def failure(error: httpx.HTTPError) -> TransportFailure:
    """Say how far a failed exchange got."""
    match error:
        case httpx.PoolTimeout():
            return TransportFailure("queued", error)
        case httpx.ConnectTimeout():
            return TransportFailure("unsent", error)
        case httpx.ConnectError():
            return TransportFailure("final" if any(map(_hopeless, _causes(error))) else "unsent", error)
        case httpx.WriteTimeout() | httpx.NetworkError() | httpx.RemoteProtocolError():
            return TransportFailure("interrupted", error)
    return TransportFailure("final", error)


def response_to_upgrade(answer: httpx.Response) -> Response | None:
    """Return an answer, read to its end, that is no upgrade; None where the connection is one for frames now."""
    return None if answer.status_code == 101 else response(answer)


def broken(error: Exception) -> SIEConnectionError:
    """Make the error of a connection for frames that broke."""
    return SIEConnectionError(f"the connection that is watched broke: {error!r}")


BROKEN: Final = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpx.HTTPError, OSError)
"""How one breaks."""
PIECE: Final = 1 << 16
"""Bytes read of one at a time, at most."""


def _hopeless(error: BaseException) -> bool:
    """Whether connecting again gives the same: a certificate, or a name that does not exist."""
    if isinstance(error, socket.gaierror):
        return error.errno != socket.EAI_AGAIN
    return isinstance(error, ssl.SSLError)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield what `error` came from; an async connect to several addresses groups one error for each."""
    if error is None:
        return
    yield error
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _causes(member)
    yield from _causes(error.__cause__ or error.__context__)


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)

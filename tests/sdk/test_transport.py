"""How far a failed exchange got, told from what the HTTP library raises."""

from __future__ import annotations

import errno
import socket
import ssl

import httpx
import pytest
from sie_sdk._calls import transport


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


REFUSED = OSError(errno.ECONNREFUSED, "refused")
GROUP = ExceptionGroup("all attempts failed", [REFUSED, OSError(errno.ENETUNREACH, "unreachable")])


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        (httpx.ConnectTimeout(""), "unsent"),
        (httpx.PoolTimeout(""), "queued"),
        (caused(httpx.ConnectError(""), REFUSED), "unsent"),
        (caused(httpx.ConnectError(""), caused(OSError("all attempts failed"), GROUP)), "unsent"),
        (caused(httpx.ConnectError(""), socket.gaierror(socket.EAI_AGAIN, "try again")), "unsent"),
        (caused(httpx.ConnectError(""), socket.gaierror(socket.EAI_NONAME, "no such name")), "final"),
        (caused(httpx.ConnectError(""), ssl.SSLCertVerificationError("self-signed")), "final"),
        (caused(httpx.ConnectError(""), ExceptionGroup("", [REFUSED, ssl.SSLError("")])), "final"),
        (httpx.ReadTimeout(""), "final"),
        (httpx.WriteTimeout(""), "interrupted"),
        (httpx.ReadError(""), "interrupted"),
        (httpx.WriteError(""), "interrupted"),
        (httpx.RemoteProtocolError(""), "interrupted"),
        (httpx.LocalProtocolError(""), "final"),
        (httpx.UnsupportedProtocol(""), "final"),
        (httpx.DecodingError(""), "final"),
    ],
)
def test_how_far_an_exchange_got(error, phase):
    failure = transport.failure(error)
    assert (failure.phase, failure.error) == (phase, error)


def test_one_timeout_stands_for_both_unless_each_has_its_own():
    def told(*seconds: float | None) -> tuple[float | None, float | None]:
        timeout = transport.timeouts(*seconds)
        return timeout.connect, timeout.read

    assert told(None, None, None) == (10, 150)
    assert told(7, None, None) == (7, 7)
    assert told(7, 1, None) == (1, 7)
    assert told(None, None, 9) == (10, 9)

"""The vocabulary between the protocol and the shells that do its I/O: actions out, outcomes in.

It knows no HTTP library and no route.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Send:
    """Send this request; answer with a `Response` or a `TransportFailure`."""

    method: Literal["GET", "POST"]
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait this long; answer with None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, read to its end. The names of `headers` are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class TransportFailure:
    """No answer came. `phase` says how far it got, which decides whether a second try may help.

    `queued`: the client's own connections were all taken. `unsent`: nothing reached the server. `interrupted`: the
    connection broke on the way. `final`: trying again gives the same (a name that does not resolve, a certificate) or
    does the work twice (a read timeout).
    """

    phase: Literal["queued", "unsent", "interrupted", "final"]
    error: Exception


Outcome = Response | TransportFailure | None
Operation = Generator[Send | Sleep, Outcome, Result]
"""One call of a client: yields actions, is sent their outcomes, returns the call's result or raises its error."""

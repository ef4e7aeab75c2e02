"""The vocabulary between the protocol and the shells that do its I/O: actions out, outcomes in.

It knows no HTTP library and no route.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Send:
    """Send this request; answer with a `Response` or a `TransportFailure`."""

    method: Literal["GET", "POST", "DELETE"]
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    timeout_s: float | None = None
    """The connect and read timeout; None for the client's."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait this long; answer with None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Offload:
    """Answer with None, on a thread where an event loop waits: reading files or a large body is what comes next."""


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


Action = Send | Sleep | Offload
Outcome = Response | TransportFailure | None
Operation = Generator[Action, Outcome, Result]
"""One call of a client: yields actions, is sent their outcomes, returns the call's result or raises its error."""


@dataclass(frozen=True, slots=True)
class Done(Generic[Result]):
    """The end of an operation."""

    result: Result


def step(operation: Operation[Result], outcome: Outcome) -> Action | Done[Result]:
    """Send an outcome to an operation and return what it wants next; threads may take turns at one operation."""
    try:
        return operation.send(outcome)
    except StopIteration as done:
        return Done(done.value)

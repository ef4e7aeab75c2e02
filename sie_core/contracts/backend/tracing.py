"""The traces of requests: what the core tells of one, whatever records it. Times are `time.monotonic()` seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Trace(Protocol):
    """One request that was chosen to be recorded. Its methods may be called from any thread."""

    @property
    def traceparent(self) -> str:
        """What a process that works for the request is sent: W3C's header of that name."""
        ...

    def stage(self, name: str, started: float, ended: float, *, links: Sequence[Any] = (), **facts: Any) -> None:
        """Record a stage of it; stages come in their order.

        Args:
            name: Its name.
            started: When it began.
            ended: When it ended.
            links: From `apart`: what it did together with other requests.
            facts: Attributes.
        """
        ...

    def event(self, name: str, at: float, **facts: Any) -> None:
        """Record what befell it at a time: a retry, a split."""
        ...

    def apart(
        self, name: str, started: float, ended: float, of: Sequence[Trace], error: str | None = None, **facts: Any
    ) -> Any:
        """Record what was done for several requests at once, `of`, in a trace of its own; return a link to it."""
        ...

    def end(self, ended: float, error: str | None = None, **facts: Any) -> None:
        """Record the request itself: what came before its first stage is `decode`, after its last one `encode`."""
        ...


class Tracer(Protocol):
    """Chooses the requests to be recorded."""

    def begin(self, name: str, started: float, headers: Mapping[str, str], *, queued: bool = False) -> Begun:
        """Begin a request.

        Args:
            name: What is asked for, as `POST /v1/encode/{model}`; a bounded number of names.
            started: When it arrived.
            headers: Those of it, with names in lower case; `traceparent` and `tracestate` are read.
            queued: Whether it came by a queue.
        """
        ...

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        ...


Begun = tuple[str, Trace | None]
"""The trace id in 32 hexadecimal digits, and the trace; None where it is not to be recorded."""

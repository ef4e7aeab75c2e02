"""Repeats calls to the Hub, for a bounded time, after rate limits, server errors and broken connections."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

log = logging.getLogger(__name__)

Result = TypeVar("Result")

TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
LONGEST_PAUSE_S = 60.0
"""The longest pause requested by the Hub that is waited for."""


@dataclass(frozen=True, slots=True)
class HubRetries:
    """Bounds the retries of transient failures.

    Args:
        budget_s: Total seconds of waiting. A longer pause requested by the Hub ends the retries at once.
        pause_s: The first pause if the Hub requests none; doubles each time.
        longest_s: The longest such pause.
        sleep: Waits.
    """

    budget_s: float = LONGEST_PAUSE_S
    pause_s: float = 1.0
    longest_s: float = 15.0
    sleep: Callable[[float], None] = time.sleep

    def call(self, ask: Callable[[], Result]) -> Result:
        """Return what `ask` returns.

        Raises:
            Exception: What `ask` raised last.
        """
        left, pause = self.budget_s, self.pause_s
        while True:
            try:
                return ask()
            except Exception as error:
                if not passes(error):
                    raise
                wait = asked_pause_s(error)
                if wait is None:
                    wait = pause * (0.5 + random.random() / 2)
                if wait > left:
                    raise
                log.warning(
                    "the Hub failed (%s), asked again in %.1f s", status_of(error) or type(error).__name__, wait
                )
            self.sleep(wait)
            left -= wait
            pause = min(2 * pause, self.longest_s)


PATIENT = HubRetries()


class TooLongAPause(Exception):
    """The Hub requested a pause longer than `LONGEST_PAUSE_S`; `response` is its answer."""

    def __init__(self, response: Any) -> None:
        super().__init__("the Hub asks for a long pause")
        self.response = response


@cache
def bound_pauses() -> None:
    """Bound the pauses that the Hub's client makes by itself; call it once per process.

    Between the requests of a download it sleeps up to five times, each as long as the Hub asks.
    """
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils._http import default_client_factory

    def bounded() -> Any:
        client: Any = default_client_factory()
        hooks = client.event_hooks
        client.event_hooks = {**hooks, "response": [*hooks.get("response", ()), _refuse_long_pause]}
        return client

    set_client_factory(bounded)


def _refuse_long_pause(response: Any) -> None:
    error = TooLongAPause(response)
    if response.status_code in TRANSIENT and (asked_pause_s(error) or 0.0) > LONGEST_PAUSE_S:
        raise error


def passes(error: Exception) -> bool:
    """Whether a failure is transient. A refused connection or an unknown host is not."""
    from huggingface_hub import errors

    if isinstance(error, errors.HfHubHTTPError):
        return status_of(error) in TRANSIENT
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"ReadError", "RemoteProtocolError", "ReadTimeout", "WriteError", "ConnectionResetError"})


def status_of(error: Exception) -> int | None:
    """Return the HTTP status of a failure of the Hub's client, if it has one."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def asked_pause_s(error: Exception) -> float | None:
    """Return the pause in seconds that the Hub requested: `Retry-After`, or `t` of its `RateLimit` header."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    after = headers.get("retry-after")
    if after is None:
        parts = (part.strip() for part in headers.get("ratelimit", "").split(";"))
        after = next((part[2:] for part in parts if part.startswith("t=")), None)
    try:
        return max(0.0, float(after))
    except (TypeError, ValueError):
        return None

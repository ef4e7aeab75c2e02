"""When a call is tried again and after how long: every rule of it, over an injected clock.

It sleeps not, sends not, and knows no operation: the protocol asks it for a pause and gets one or an exception.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sie_sdk._answers.failures import CallFacts, Failure, to_exception
from sie_sdk._calls.exchange import TransportFailure
from sie_sdk.errors import SIEConnectionError, error_spec

DEFAULT_BUDGET_S = 900.0
"""How long a call may go on waiting in all, where `provision_timeout_s` says nothing."""
UNREACHED_BUDGET_S = 10.0
"""How long a call tries to reach a server that never answered this client, where `provision_timeout_s` says nothing:
long enough for a restart, and soon enough to notice a wrong address."""

_MAX_LORA_RETRIES = 10
_LONGEST_MEMORY_PAUSE_S = 30.0
_FIRST_RECONNECT_PAUSE_S = 0.25
_LONGEST_RECONNECT_PAUSE_S = 5.0
_TIMEOUT_PAUSE_S = 5.0
_JITTER = 0.25


@dataclass(slots=True)
class Reach:
    """Whether a client's server was ever reached; the calls of one client share it."""

    reached: bool = False


@dataclass(slots=True)
class Retries:
    """The retries of one call.

    A pause the server asks for is kept exactly; one of our own is shortened by up to a quarter, at random, so that
    many clients do not come back as one.
    """

    call: CallFacts
    clock: Callable[[], float]
    """Monotonic seconds."""
    rng: random.Random
    wait_for_capacity: bool = True
    budget_s: float | None = None
    """How long the caller is willing to wait; None for the defaults."""
    max_oom_retries: int = 3
    reach: Reach = field(default_factory=Reach)
    _started: float = field(init=False)
    _tried: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def after_failure(self, failure: Failure) -> float:
        """Return how many seconds to wait before the next try.

        Raises:
            SIEError: There is none: the failure is final, or its tries or the budget are used up.
        """
        match failure:
            case Failure(status=202) | Failure(status=503, code="PROVISIONING"):
                return self._pause(failure, _pause_of("PROVISIONING"), clip=True, allowed=self.wait_for_capacity)
            case Failure(status=503, code="MODEL_LOADING"):
                return self._pause(failure, _pause_of("MODEL_LOADING"), clip=True)
            case Failure(status=503, code="LORA_LOADING"):
                allowed = self._count("lora") <= _MAX_LORA_RETRIES
                return self._pause(failure, _pause_of("LORA_LOADING"), clip=True, allowed=allowed)
            case Failure(status=503, code="RESOURCE_EXHAUSTED"):
                return self._after_memory(failure)
            case Failure(status=429):
                return self._pause(failure, _pause_of("RATE_LIMITED"))
            case Failure(status=503, code="QUEUE_FULL"):
                return self._pause(failure, _pause_of("QUEUE_FULL"))
            case Failure(
                status=503,
                code="QUEUE_UNAVAILABLE" | "MODEL_NOT_LOADED" | "CONFIG_STORE_UNAVAILABLE" | "transport_failure",
            ):
                # Such a server may be gone for good: only its own word that it returns is worth a wait.
                return self._pause(failure, 0.0, allowed=failure.retry_after_s is not None)
            case Failure(status=504):
                return self._pause(failure, _TIMEOUT_PAUSE_S, clip=True, allowed=self.wait_for_capacity)
        raise to_exception(failure, self.call)

    def after_transport(self, failure: TransportFailure, url: str) -> float:
        """Return how many seconds to wait before connecting to `url` again.

        Raises:
            SIEConnectionError: Another try is not allowed, would not help, or has no budget left.
        """
        self.reach.reached |= failure.phase == "interrupted"
        doubled = _FIRST_RECONNECT_PAUSE_S * 2 ** min(self._count("transport") - 1, 10)
        pause = self._jittered(min(doubled, _LONGEST_RECONNECT_PAUSE_S))
        if failure.phase == "final" or not self.wait_for_capacity:
            raise SIEConnectionError(f"no answer from {url}: {failure.error!r}") from failure.error
        hasty = failure.phase == "unsent" and self.budget_s is None and not self.reach.reached
        if pause >= self._remaining(UNREACHED_BUDGET_S if hasty else DEFAULT_BUDGET_S):
            waited = self.clock() - self._started
            remedy = "; check base_url, or set provision_timeout_s to wait longer for a server that starts"
            raise SIEConnectionError(
                f"no answer from {url} in {waited:.0f} s: {failure.error!r}{remedy if hasty else ''}"
            ) from failure.error
        return pause

    def _pause(self, failure: Failure, default_s: float, *, clip: bool = False, allowed: bool = True) -> float:
        """Wait as the server says, else the default.

        A wait that may be clipped is cut to what is left of the budget, and one last try follows it; any other must
        end before the budget does.
        """
        hint, remaining = failure.retry_after_s, self._remaining()
        pause = hint if hint is not None else self._jittered(default_s)
        if not allowed:
            raise to_exception(failure, self.call)
        if remaining <= 0 or (pause >= remaining and not clip):
            raise to_exception(self._exhausted(failure), self.call)
        return min(pause, remaining)

    def _after_memory(self, failure: Failure) -> float:
        tries, hint = self._count("memory"), failure.retry_after_s
        if tries == 1 and hint is not None:
            pause = min(hint, _LONGEST_MEMORY_PAUSE_S)
        else:
            doubled = max(_pause_of("RESOURCE_EXHAUSTED"), hint or 0.0) * 2 ** min(tries - 1, 10)
            pause = self._jittered(min(doubled, _LONGEST_MEMORY_PAUSE_S))
        if tries > self.max_oom_retries or pause >= self._remaining():
            raise to_exception(failure, self.call, retries=tries - 1)
        return pause

    def _exhausted(self, failure: Failure) -> Failure:
        budget_s = DEFAULT_BUDGET_S if self.budget_s is None else self.budget_s
        note = f"the budget of {budget_s:g} s for waiting ended; provision_timeout_s allows more"
        return replace(failure, message=f"{failure.message} ({note})")

    def _count(self, what: str) -> int:
        self._tried[what] = self._tried.get(what, 0) + 1
        return self._tried[what]

    def _remaining(self, default_s: float = DEFAULT_BUDGET_S) -> float:
        return self._started + (default_s if self.budget_s is None else self.budget_s) - self.clock()

    def _jittered(self, seconds: float) -> float:
        return seconds * (1.0 - _JITTER * self.rng.random())


def _pause_of(code: str) -> float:
    return error_spec(code).retry_after_s or 0.0

"""The record of a load that failed: its error class, the attempts so far, and when the next one is allowed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from sie_core.catalog.loading import RAISED_BY
from sie_core.contracts import InferenceError, LoadFailure, ModelLoadError, OutOfDeviceMemory
from sie_core.contracts.errors import PERMANENT_FAILURES
from sie_core.engine.timeouts import Timeouts

log = logging.getLogger(__name__)

# Failed attempts in a row after which a transient failure counts as permanent, with the longest cooldown.
MOST_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class FailedLoad:
    """The last failed load of a model. Times are seconds of the monotonic clock."""

    model: str
    error_class: LoadFailure
    message: str
    attempts: int
    retry_at: float
    """Time from which the load may be retried."""

    @property
    def permanent(self) -> bool:
        """Whether only the operator can fix it. Requests still retry, rarely: nothing else would notice the fix."""
        return self.error_class in PERMANENT_FAILURES or self.attempts >= MOST_ATTEMPTS

    def may_retry(self, now: float) -> bool:
        """Whether the cooldown is over."""
        return now >= self.retry_at

    def error(self, now: float) -> InferenceError:
        """Make the error (502) that requests get until the next attempt."""
        pause = max(1.0, self.retry_at - now)
        then = f"The first request from {pause:.0f} s on tries again."
        if self.permanent:
            then = (
                "Trying again does not help until an operator puts that right. A changed config is followed at once, "
                f"anything else found by the first request from {pause:.0f} s on, or after a restart."
            )
        return InferenceError(
            "MODEL_LOAD_FAILED",
            f"{self.model} could not be loaded: {self.message.removesuffix('.')}. {then}",
            details={"error_class": self.error_class, "permanent": self.permanent, "attempts": self.attempts},
        )

    def describe(self) -> dict[str, Any]:
        """Return the `last_error` of `/v1/models`."""
        return {
            "code": "MODEL_LOAD_FAILED",
            "message": self.message,
            "attempts": self.attempts,
            "permanent": self.permanent,
        }


def _raised(error: BaseException) -> str:
    # Name the error's class and the module that raised it: the operator learns which library is broken.
    module, frame = "", error.__traceback__
    while frame is not None:
        module, frame = str(frame.tb_frame.f_globals.get("__name__", "")), frame.tb_next
    where = f" in {module}" if module else ""
    notes = (each for each in getattr(error, "__notes__", ()) if each.startswith(RAISED_BY))
    return f"its adapter raised {type(error).__name__}{where}{''.join(f', {each}' for each in notes)}"


def failed_load(
    model: str, error: BaseException, before: FailedLoad | None, now: float, timeouts: Timeouts
) -> FailedLoad:
    """Record that loading `model` raised `error`. The text of an untyped exception goes to the log only."""
    attempts = 1 if before is None else before.attempts + 1
    if isinstance(error, ModelLoadError):
        failure, message = error.failure, str(error)
    elif isinstance(error, OutOfDeviceMemory | MemoryError):
        failure, message = "OOM", "the device has no room for it."
    else:
        failure, message = "UNKNOWN", f"{_raised(error)}; the server's log says more."
    foreign = None if isinstance(error, ModelLoadError) else error
    log.error(
        "loading %s failed (%s, attempt %d): %s", model, failure, attempts, message,
        exc_info=foreign, extra={"facts": {"model": model, "error_class": failure, "attempts": attempts}},
    )  # fmt: skip
    return FailedLoad(model, failure, message, attempts, now + _cooldown_s(failure, attempts, timeouts))


def _cooldown_s(failure: LoadFailure, attempts: int, timeouts: Timeouts) -> float:
    if failure in PERMANENT_FAILURES:
        return timeouts.permanent_cooldown_s
    cooldown_s = timeouts.cooldown_s[failure] * 2.0 ** (min(attempts, MOST_ATTEMPTS) - 1)
    return min(cooldown_s, timeouts.longest_cooldown_s)

"""Gives pulls their credit back: seldom while slices are answered quickly, as each request costs the broker a message.

It does so at once while nothing is held, and once half of a pull's credit is gathered: whatever this process has room
for never waits behind a worker without work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median

from sie_core.contracts import Pull
from sie_core.settings import Settings

RECENT = 64
"""Slices whose times the p50 is of."""
STEP = 16
"""Between two looks at it."""


def credit_of_pull(settings: Settings) -> int:
    """Give the messages of one model that a sidecar may hold."""
    return settings.max_concurrent_batches * settings.batcher_max_batch_requests


class Quantum:
    """How long credit is gathered: twice as long with each look that finds the p50 under its target, else half as long.

    Args:
        least_s: At least; that is where it begins.
        most_s: At most.
        target_s: Of the p50 of the time between the delivery of a slice and its answer.
    """

    def __init__(self, least_s: float, most_s: float, target_s: float) -> None:
        self._least_s, self._most_s, self._target_s = least_s, max(least_s, most_s), target_s
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._unseen = 0
        self.seconds = least_s

    def answered(self, seconds: float) -> None:
        """Count the time that a slice took."""
        self._recent.append(seconds)
        self._unseen += 1
        if self._unseen == STEP:
            self._unseen = 0
            factor = 2.0 if median(self._recent) <= self._target_s else 0.5
            self.seconds = min(self._most_s, max(self._least_s, factor * self.seconds))


class Credit:
    """The credit that pulls are to have back.

    Args:
        settings: Bounds and target of the quantum, and the credit of a pull.
        later: Has something called after so many seconds.
    """

    def __init__(self, settings: Settings, later: Callable[[float, Callable[[], None]], object]) -> None:
        self.quantum = Quantum(
            settings.adaptive_min_quantum_ms / 1000,
            settings.adaptive_max_quantum_ms / 1000,
            settings.adaptive_target_p50_ms / 1000,
        )
        self._many = credit_of_pull(settings) // 2
        self._later, self._gathered = later, dict[Pull, int]()
        self._is_due = False

    def give(self, pull: Pull, *, idle: bool) -> None:
        """Have a pull take one message more, before long.

        Args:
            pull: The pull.
            idle: Whether nothing is held.
        """
        gathered = self._gathered[pull] = self._gathered.get(pull, 0) + 1
        if idle:
            self._give_all()
        elif gathered >= self._many:
            pull.add_credit(self._gathered.pop(pull))
        elif not self._is_due:
            self._is_due = True
            self._later(self.quantum.seconds, self._due)

    def _due(self) -> None:
        self._is_due = False
        self._give_all()

    def _give_all(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for pull, messages in gathered.items():
            pull.add_credit(messages)

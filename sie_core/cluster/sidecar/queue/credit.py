"""Gives pulls their credit back: seldom while slices are answered quickly, as each request costs the broker a message.

It does so at once while nothing is held, and once half of a pull's credit is gathered: whatever this process has room
for never waits behind a worker without work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from sie_core.cluster.sidecar.reporting import most_cost
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


@dataclass(slots=True)
class _Account:
    """One pull's."""

    held: int = 0
    """Messages that came by it and are at work."""
    cost: int = 0
    gathered: int = 0
    """Credit that it is to have back."""


class Credit:
    """The credit that pulls are to have back.

    A pull that alone has work may have all of a pull's credit. Where several have, each has an equal share of the cost
    that is taken at a time; beyond it, it has a batch's worth of slices.

    Args:
        settings: Bounds and target of the quantum, the credit of a pull, and the cost that is taken at a time.
        later: Has something called after so many seconds.
    """

    def __init__(self, settings: Settings, later: Callable[[float, Callable[[], None]], object]) -> None:
        self.quantum = Quantum(
            settings.adaptive_min_quantum_ms / 1000,
            settings.adaptive_max_quantum_ms / 1000,
            settings.adaptive_target_p50_ms / 1000,
        )
        self._most, self._least = credit_of_pull(settings), settings.batcher_max_batch_requests
        self._most_cost = most_cost(settings)
        self._accounts: dict[Pull, _Account] = {}
        self._later, self._is_due = later, False

    def take(self, pull: Pull, cost: int) -> None:
        """Count a message at work that came by a pull."""
        account = self._accounts.setdefault(pull, _Account())
        account.held += 1
        account.cost += cost

    def give(self, pull: Pull, cost: int | None = None, *, idle: bool) -> None:
        """Have a pull take one message more, before long.

        Args:
            pull: The pull.
            cost: Of the message in whose place it comes; None where that was not counted.
            idle: Whether nothing is held.
        """
        account = self._accounts.setdefault(pull, _Account())
        if cost is not None:
            account.held -= 1
            account.cost -= cost
        account.gathered += 1
        if idle:
            self._give_all()
        elif account.gathered >= self._most // 2:
            self._give(pull, account)
        if account.gathered and not self._is_due:
            self._is_due = True
            self._later(self.quantum.seconds, self._due)

    def _due(self) -> None:
        self._is_due = False
        self._give_all()

    def _give_all(self) -> None:
        for pull, account in list(self._accounts.items()):
            self._give(pull, account)

    def _give(self, pull: Pull, account: _Account) -> None:
        """Give a pull what it has gathered, as far as its share goes; the rest comes once others' work is done."""
        working = sum(each.held > 0 for each in self._accounts.values())
        is_beyond = working > 1 and account.cost >= self._most_cost / working
        room = self._least - account.held - pull.credit if is_beyond else account.gathered
        messages = min(account.gathered, room)
        if messages > 0:
            account.gathered -= messages
            pull.add_credit(messages)
        if not (account.held or account.gathered):
            del self._accounts[pull]

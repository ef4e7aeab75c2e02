"""Gives pulls their credit back: seldom while slices are answered quickly, as each request costs the broker a message.

It does so at once while nothing is held, and once half of a pull's credit is gathered: whatever this process has room
for never waits behind a worker without work. A pull begins with credit for one message, which tells how large they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.load import most_cost
from sie_core.contracts import Pull

RECENT = 64
"""Slices whose times the p50 is of."""
STEP = 16
"""Between two looks at it."""
FIRST = 1
"""Messages that a new pull may bring, and every pull while nothing of it is at work, whatever is at work of others."""
MOST_COST = 64 << 20
"""Of what is at work and of what may come beside it, over all pulls, `FIRST` of each aside: it bounds memory."""
MOST_MESSAGE = 1 << 20
"""What a message counts at most: a larger slice does not come in its message, and is bounded where it is fetched."""
FADING = 7 / 8
"""By so much what a message of a pull is taken to cost falls with each that costs less."""


def credit_of_pull(settings: ClusterSettings) -> int:
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
    each: float = 0.0
    """What the next messages are taken to cost; 0 before there was one."""


class Credit:
    """The credit that pulls are to have back.

    A pull that alone has work may have all of a pull's credit. Where several have, each has an equal share of the cost
    that is taken at a time; beyond it, it has a batch's worth of slices. All together are bounded by `MOST_COST`.

    Args:
        settings: Bounds and target of the quantum, the credit of a pull, and the cost that is taken at a time.
        later: Has something called after so many seconds.
    """

    def __init__(self, settings: ClusterSettings, later: Callable[[float, Callable[[], None]], object]) -> None:
        self.quantum = Quantum(
            settings.adaptive_min_quantum_ms / 1000,
            settings.adaptive_max_quantum_ms / 1000,
            settings.adaptive_target_p50_ms / 1000,
        )
        self._most, self._least = credit_of_pull(settings), settings.batcher_max_batch_requests
        self._most_cost = most_cost(settings)
        self._accounts: dict[Pull, _Account] = {}
        self._later, self._is_due = later, False

    def open(self, pull: Pull) -> None:
        """Give credit to a pull from now on; it was opened with `FIRST`."""
        self._accounts[pull] = _Account(gathered=self._most - FIRST)

    def close(self, pull: Pull) -> None:
        """Give a pull none any more."""
        self._accounts.pop(pull, None)

    def take(self, pull: Pull, cost: int) -> None:
        """Count a message at work that came by a pull."""
        if (account := self._accounts.get(pull)) is None:
            return
        is_first, counted = not account.each, min(cost, MOST_MESSAGE)
        account.held += 1
        account.cost += counted
        account.each = max(1, counted, FADING * account.each)
        if is_first:
            self._give([pull])

    def give(self, pull: Pull, cost: int | None = None, *, idle: bool) -> None:
        """Have a pull take one message more, before long.

        Args:
            pull: The pull.
            cost: Of the message in whose place it comes; None where that was not counted.
            idle: Whether nothing is held.
        """
        if (account := self._accounts.get(pull)) is None:
            return
        if cost is not None:
            account.held -= 1
            account.cost -= min(cost, MOST_MESSAGE)
        account.gathered += 1
        if idle:
            self._give(self._accounts)
        elif account.gathered >= self._most // 2:
            self._give([pull])
        if account.gathered and not self._is_due:
            self._is_due = True
            self._later(self.quantum.seconds, self._due)

    def _due(self) -> None:
        self._is_due = False
        self._give(self._accounts)

    def _give(self, pulls: Iterable[Pull]) -> None:
        """Give pulls what they have gathered, as far as there is room; the rest comes once others' work is done."""
        accounts = self._accounts.values()
        working = sum(each.held > 0 for each in accounts)
        to_come = sum(each.each * (self._most - each.held - each.gathered) for each in accounts)
        free = MOST_COST - sum(each.cost for each in accounts) - to_come
        for pull in pulls:
            account = self._accounts[pull]
            there, room = self._most - account.gathered, account.gathered  # at work, or to come
            if working > 1 and account.cost >= self._most_cost / working:
                room = min(room, self._least - there)
            spare = int(free / account.each) if account.each else 0
            room = min(room, max(spare, FIRST - there))
            if room > 0:
                free -= room * account.each
                account.gathered -= room
                pull.add_credit(room)

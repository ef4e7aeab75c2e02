"""What a sidecar holds, by cost: how much of each model, whether that is about all it takes, and what it gets done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from sie_core.cluster.messages.work import WorkHead

SATURATED_FROM, SATURATED_UNTIL = 0.9, 0.7
"""Shares of the cost that is taken at a time."""
LEAST_S = 1.0
"""Of work with more waiting, from which on a rate is told."""
SMOOTHING = 0.3
"""The weight of the last rate."""


class Load:
    """The work of one sidecar. Costs are those of `WorkHead.cost`.

    Args:
        batch_cost: The cost of a batch: while more than that waits, the adapter process has all it can run.
        most_cost: What is taken at a time.
        on_saturated: Called when it begins or ends to hold about that much.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        batch_cost: int,
        most_cost: int,
        on_saturated: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._batch_cost, self._most_cost, self._on_saturated = batch_cost, most_cost, on_saturated
        self._clock = clock
        self._since = clock()
        self._busy_s = self._done = 0.0
        self._loading = 0
        self.of_model: Counter[str] = Counter()
        """The cost held of each model."""
        self.slices: Counter[str] = Counter()
        """The slices held of each model."""
        self.cost = 0
        """The cost held."""
        self.saturated = False
        self.cost_per_s: float | None = None
        """What is answered a second while there is more than can be run; None before there ever was."""

    def take(self, head: WorkHead) -> None:
        """Count a slice."""
        self._count_time()
        self._add(head, 1)

    def leave(self, head: WorkHead, *, answered: bool) -> None:
        """Count a slice no more, as it was answered or not."""
        self._count_time()
        if answered and self._is_busy:
            self._measure()
            self._done += head.cost
        self._add(head, -1)

    def waits_for_load(self, head: WorkHead, *, waits: bool) -> None:
        """Take that a slice waits for a load, or does no more: what waits so keeps nothing busy."""
        self._count_time()
        self._loading += head.cost if waits else -head.cost

    @property
    def _is_busy(self) -> bool:
        return self.cost - self._loading > self._batch_cost

    def _add(self, head: WorkHead, slices: int) -> None:
        self.cost += slices * head.cost
        self.of_model[head.model] += slices * head.cost
        self.slices[head.model] += slices
        if not self.slices[head.model]:
            del self.of_model[head.model], self.slices[head.model]
        limit = SATURATED_UNTIL if self.saturated else SATURATED_FROM
        if (self.cost >= limit * self._most_cost) != self.saturated:
            self.saturated = not self.saturated
            self._on_saturated()

    def _count_time(self) -> None:
        now = self._clock()
        if self._is_busy:
            self._busy_s += now - self._since
        self._since = now

    def _measure(self) -> None:
        """Measure from one answer to another. A batch's answers come together: its time is that of all of them."""
        if self._done and self._busy_s < LEAST_S:
            return
        if self._done:
            rate = self._done / self._busy_s
            before = rate if self.cost_per_s is None else self.cost_per_s
            self.cost_per_s = before + SMOOTHING * (rate - before)
        self._busy_s = self._done = 0.0

"""What a sidecar holds, by cost: how much of each model, whether that is about all it takes, and what it gets done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from sie_cluster.messages.work import WorkHead

SATURATED_FROM, SATURATED_UNTIL = 0.9, 0.7
"""Shares of the cost that is taken at a time."""
LEAST_S = 1.0
"""Of work with more waiting, from which on a rate is told."""
TOGETHER_S = 0.02
"""Answers that come closer may be of one batch, whose time is that of all of them. No rate is measured between them,
and all count if there was more than could be run before the first. Others count while there is."""
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
        """Seconds with more waiting than can be run, and the cost that was answered meanwhile and is not measured."""
        self._answered_s = self._measured_s = 0.0
        """Of the former, when the last of these answers came, and when a rate was measured."""
        self._last_at = self._first_at = float("-inf")
        """When the last answer came, and the first of those together with it."""
        self._had_more = False
        """Whether more was waiting then than could be run."""
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
        if answered:
            self._count_answer(head.cost)
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

    def _count_answer(self, cost: int) -> None:
        now = self._since
        if now - self._last_at >= TOGETHER_S or now - self._first_at >= LEAST_S:
            self._measure()
            self._first_at, self._had_more = now, self._is_busy
        self._last_at = now
        if self._had_more or self._is_busy:
            self._done += cost
            self._answered_s = self._busy_s

    def _measure(self) -> None:
        """Measure up to the last answer."""
        passed_s = self._answered_s - self._measured_s
        if passed_s < LEAST_S:
            return
        rate = self._done / passed_s
        before = rate if self.cost_per_s is None else self.cost_per_s
        self.cost_per_s = before + SMOOTHING * (rate - before)
        self._measured_s = self._answered_s
        self._done = 0.0

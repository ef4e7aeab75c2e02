"""The clock of fair queueing: it shows how much cost, over its weight, everyone would have got if all ran at once."""

from __future__ import annotations

from heapq import heappop, heappush


class VirtualTime:
    """Advances by the cost that is served, divided by the weight of all who share it.

    A flow that was served before others and left has had more than its share. Its weight counts until the others have
    had theirs.
    """

    def __init__(self) -> None:
        self.now = 0.0
        # Of those who wait.
        self.weight = 0.0
        # Those who left early: the virtual time at which they would have been through, and their weights.
        self._early: list[tuple[float, float]] = []
        self._early_weight = 0.0

    def enter(self, weight: float) -> None:
        """Have one more share it."""
        self.weight += weight

    def leave(self, weight: float, finish: float, *, last: bool) -> None:
        """Have one share it no more that was served up to `finish`; `last` says whether nobody waits now."""
        self.weight = 0.0 if last else self.weight - weight  # rounding does not add up
        if finish > self.now:
            heappush(self._early, (finish, weight))
            self._early_weight += weight

    def advance(self, cost: float) -> None:
        """Serve so many cost units."""
        while self._early:
            finish, weight = self._early[0]
            until = max(0.0, finish - self.now) * (self.weight + self._early_weight)
            if until > cost:
                break
            cost -= until
            self.now = max(self.now, finish)
            heappop(self._early)
            self._early_weight = self._early_weight - weight if self._early else 0.0
        if self._early or self.weight:
            self.now += cost / (self.weight + self._early_weight)

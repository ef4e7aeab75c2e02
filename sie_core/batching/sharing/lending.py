"""For how long models of which little waits go before the next batch of another, however many wait for that. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from sie_core.batching.sharing.shares import WEIGHTS

# The part of its predicted time for which short requests of other models go before the rest of a batch that holds them
# up, and models of which little waits before the next one.
LENT: Final = 0.25


class Lending:
    """The time that is left to those who go first, by their weight.

    Those of a smaller weight than what they go before have so much less. Each weight has time of its own: what comes
    with a smaller one uses up nothing of it.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        # Whose turn it was last, how long that takes, and the mean weight of those who wait for it still.
        self.lender: Hashable | None = None
        self.lender_s = self._mean_weight = 0.0
        # Negative where they had more.
        self._left_s: dict[float, float] = dict.fromkeys(WEIGHTS.values(), 0.0)

    def lend(self, lender: Hashable, mean_weight: float, seconds: float) -> None:
        """Note that a model has its turn of so many seconds; `mean_weight` is of those who wait for it still."""
        self.lender, self.lender_s, self._mean_weight = lender, seconds, mean_weight
        for weight, left_s in self._left_s.items():
            self._left_s[weight] = min(0.0, left_s) + self.part(weight) * seconds

    def use(self, weight: float, seconds: float) -> None:
        """Note that what waits with a weight goes first, for so many seconds."""
        own = _step(weight)
        self._left_s[own] -= seconds
        for step, left_s in self._left_s.items():  # nor do they take turns with who has a smaller weight
            if step < own:
                self._left_s[step] = min(left_s, max(0.0, left_s - seconds))

    def has_left(self, weight: float) -> bool:
        """Whether what waits with a weight goes before the lender's next batch."""
        return self._left_s[_step(weight)] > 0

    def part(self, weight: float) -> float:
        """Return the part of the lender's time for which what waits with a weight goes first."""
        return LENT * min(1.0, weight / self._mean_weight) if self._mean_weight else LENT

    def turn_s(self, weight: float) -> float:
        """Return how long batches of the lender run until what waits with a weight goes first again."""
        if self.has_left(weight) or not self.lender_s:
            return 0.0
        return self.lender_s * (1 + int(-self._left_s[_step(weight)] / (self.part(weight) * self.lender_s)))

    def forget(self, lender: Hashable) -> None:
        """Forget a model that is not served any more."""
        if lender is self.lender:
            self._clear()


def _step(weight: float) -> float:
    return max((step for step in WEIGHTS.values() if step <= weight), default=min(WEIGHTS.values()))

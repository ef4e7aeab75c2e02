"""For how long models of which little waits go before the next batch of another, however many wait for that. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from sie_core.batching.sharing.shares import WEIGHTS

# The part of its predicted time for which short requests of other models go before the rest of a batch that holds them
# up, and models of which little waits before the next one.
LENT: Final = 0.25
# A request is short that runs for no longer, and so is what waits of a model where all of it together does.
SHORT_S: Final = 0.02
# Little waits of a model where all of it runs for no longer. By their weight alone, few clients would wait for seconds
# beside hundreds of another model, whose requests share what every batch takes.
LITTLE_S: Final = 0.1


class Lending:
    """The time that is left to those who go first, by how long they run and by their weight.

    What is short goes first for a quarter of each turn, and what is longer for what that leaves of it, an eighth at
    least: one batch of 30 ms would use up what ten short ones wait for. Those of a smaller weight than what they go
    before have so much less. Each weight has time of its own: what comes with a smaller one uses up nothing of it.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        # Whose turn it was last, how long that takes, and the mean weight of those who waited for it.
        self.lender: Hashable | None = None
        self.turn_took_s = self._mean_weight = 0.0
        # Seconds left by `_account` and by weight; negative where they had more, which later turns make up for.
        self._left_s = {SHORT_S: dict.fromkeys(WEIGHTS.values(), 0.0), LITTLE_S: dict.fromkeys(WEIGHTS.values(), 0.0)}

    def lend(self, lender: Hashable, mean_weight: float, seconds: float) -> None:
        """Note that a model has its turn of so many seconds; `mean_weight` is of those who wait for it."""
        short, longer = self._left_s[SHORT_S], self._left_s[LITTLE_S]
        for weight in short:
            unused = max(short[weight], self.part(weight, LITTLE_S) * self.turn_took_s)
            longer[weight] = min(0.0, longer[weight]) + unused
        self.lender, self.turn_took_s, self._mean_weight = lender, seconds, mean_weight
        for weight in short:
            short[weight] = min(0.0, short[weight]) + self.part(weight) * seconds

    def use(self, weight: float, waiting_s: float, seconds: float) -> None:
        """Note that of what waits with a weight, and runs for `waiting_s`, so many seconds go first."""
        account, own = _account(waiting_s), _step(weight)
        left = self._left_s[account]
        left[own] = max(left[own] - seconds, min(left[own], -max(account, seconds)))
        # It is time of smaller weights, too: they have less left, and owe nothing for it.
        for smaller in (step for step in left if step < own):
            left[smaller] = min(left[smaller], max(0.0, left[smaller] - seconds))

    def has_left(self, weight: float, waiting_s: float) -> bool:
        """Whether what waits with a weight, and runs for `waiting_s`, goes before the lender's next batch."""
        return self._left_s[_account(waiting_s)][_step(weight)] > 0

    def part(self, weight: float, waiting_s: float = 0.0) -> float:
        """Return the part of the lender's turn that goes to what waits with a weight and runs for `waiting_s`."""
        lent = LENT if waiting_s <= SHORT_S else LENT / 2
        return lent * min(1.0, weight / self._mean_weight) if self._mean_weight else lent

    def turn_s(self, weight: float, waiting_s: float) -> float:
        """Return how long batches of the lender run until what waits with a weight goes first again."""
        if self.has_left(weight, waiting_s) or not self.turn_took_s:
            return 0.0
        owed_s = -self._left_s[_account(waiting_s)][_step(weight)]
        return self.turn_took_s * (1 + int(owed_s / (self.part(weight, waiting_s) * self.turn_took_s)))

    def forget(self, lender: Hashable) -> None:
        """Forget a model that is not served any more."""
        if lender is self.lender:
            self._clear()


def _account(waiting_s: float) -> float:
    # The key in `Lending._left_s` of what runs for so long.
    return SHORT_S if waiting_s <= SHORT_S else LITTLE_S


def _step(weight: float) -> float:
    # The weight of a priority that a weight has at least.
    return max((step for step in WEIGHTS.values() if step <= weight), default=min(WEIGHTS.values()))

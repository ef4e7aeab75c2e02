"""Requests that were judged by a guess and are being prepared: who comes later is behind them. Pure."""

from __future__ import annotations

from collections.abc import Hashable

from sie_core.batching.sharing.demand import Demand
from sie_core.batching.sharing.shares import Claims


class InPreparation:
    """Those of one queue.

    Judged without them a request would pass that finds them before it when it is prepared: at overload half of all
    refusals would come after that work.
    """

    def __init__(self) -> None:
        # With the cost that each was guessed to have.
        self._demands: dict[Demand, int] = {}
        self.cost = 0

    def __len__(self) -> int:
        return len(self._demands)

    def begin(self, demand: Demand) -> None:
        """Count a request."""
        if demand not in self._demands:
            self._demands[demand] = demand.cost
            self.cost += demand.cost

    def end(self, demand: Demand) -> None:
        """Count a request no longer, if it is counted."""
        self.cost -= self._demands.pop(demand, 0)

    def weight(self, claims: Claims, own: Hashable) -> float:
        """Return the weight of those other than `own` of whom nothing waits yet, by `claims`."""
        others = {each.who for each in self._demands} - {own}
        return sum(who[1] for who in others if claims.cost_of(who) is None)

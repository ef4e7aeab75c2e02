"""Requests that were judged by a guess and are being prepared: who comes later is behind them. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Final

from sie_core.batching.sharing.demand import Demand
from sie_core.batching.sharing.shares import Claims

# Of more, the rest wait for threads, and the device may run what comes later before them.
COUNTED: Final = 8


class InPreparation:
    """Those of one queue; the first `COUNTED` of them count.

    Judged without them a request would pass that finds them before it when it is prepared: at overload half of all
    refusals would come after that work.
    """

    def __init__(self) -> None:
        # With the cost that each was guessed to have.
        self._demands: dict[Demand, int] = {}

    def __len__(self) -> int:
        return len(self._demands)

    def begin(self, demand: Demand) -> None:
        """Count a request."""
        self._demands.setdefault(demand, demand.cost)

    def end(self, demand: Demand) -> None:
        """Count a request no longer, if it is counted."""
        self._demands.pop(demand, None)

    def by_weight(self, claims: Claims, own: Hashable) -> Iterator[tuple[float, int, int]]:
        """Return each weight, how many of those with it of whom nothing waits, and the guessed cost of all with it.

        Args:
            claims: Of what waits.
            own: Who asks, and is none of them.
        """
        costs: Counter[float] = Counter()
        clients: defaultdict[float, set[Hashable]] = defaultdict(set)
        for demand, cost in islice(self._demands.items(), COUNTED):
            if demand.who != own:
                costs[demand.who[1]] += cost
                if claims.cost_of(demand.who) is None:
                    clients[demand.who[1]].add(demand.who)
        return ((weight, len(clients[weight]), cost) for weight, cost in costs.items())

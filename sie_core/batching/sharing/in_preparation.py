"""The requests that passed a guess of their cost and are being prepared, which later ones find before them. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from sie_core.batching.sharing.demand import Demand

# So many of them count, those that began last.
COUNTED: Final = 8
# None counts for longer: it waits for a thread or for room, and the device runs what comes later before it.
LONGEST_S: Final = 0.25


class InPreparation:
    """Those of one queue. `now` never decreases.

    Without them a request passes its guess and is refused once it is prepared, as those are queued by then.
    """

    def __init__(self) -> None:
        # When each began, and the guessed cost of its first slice, which is what it will queue.
        self._demands: dict[Demand, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._demands)

    def begin(self, demand: Demand, now: float) -> None:
        """Count a request."""
        self._demands.setdefault(demand, (now, demand.cost))

    def end(self, demand: Demand) -> None:
        """Count a request no longer, if it is counted."""
        self._demands.pop(demand, None)

    def before(self, now: float) -> Iterator[tuple[tuple[Hashable, float], int]]:
        """Yield who is before a request that is judged now, at which weight, and what it will queue."""
        for number, (demand, (begun, cost)) in enumerate(reversed(self._demands.items())):
            if number >= COUNTED or begun + LONGEST_S < now:
                break
            yield demand.who, cost

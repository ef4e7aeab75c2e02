"""Shares of one device: whose turn it is among models, and how long what waits will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sie_core.batching.cost_model import CostModel
from sie_core.batching.request_sizes import RequestTimes
from sie_core.contracts import Priority, QueuedUnit
from sie_core.contracts.device.batching import AGE_S

# The weight of each `X-SIE-Priority`, beside that of requests without one.
WEIGHTS: Final[Mapping[Priority | None, float]] = {"interactive": 4.0, None: 1.0, "bulk": 0.25}

Model = TypeVar("Model", bound=Hashable)

# A measured speed weighs this much less with each later one.
_MEMORY = 0.9


class Claims:
    """What waits of each client of a model, or of each request of nobody known: the cost, and the weight together."""

    def __init__(self) -> None:
        self._costs: dict[Hashable, int] = {}
        # How many wait with each weight, and what of theirs does.
        self._weights: Counter[float] = Counter()
        self._cost_by_weight: Counter[float] = Counter()
        self.weight = 0.0

    def __len__(self) -> int:
        return len(self._costs)

    @property
    def mean_weight(self) -> float:
        """Return the weight of one of them, on average; 0 where nobody waits."""
        return self.weight / len(self._costs) if self._costs else 0.0

    @property
    def largest_weight(self) -> float:
        """Return the largest weight of one of them; 0 where nobody waits."""
        return max((weight for weight, waiting in self._weights.items() if waiting), default=0.0)

    def cost_of(self, who: Hashable) -> int | None:
        """Return the cost units that wait of a client at a weight; None where nothing does."""
        return self._costs.get(who)

    def by_weight(self) -> Iterator[tuple[float, int, int]]:
        """Return each weight, how many wait with it, and the cost units that wait of them together."""
        return ((weight, waiting, self._cost_by_weight[weight]) for weight, waiting in self._weights.items() if waiting)

    def add(self, queued: QueuedUnit) -> None:
        """Count a unit."""
        who = claimant(queued)
        if who not in self._costs:
            self.weight += queued.weight
            self._weights[queued.weight] += 1
        self._costs[who] = self._costs.get(who, 0) + queued.unit.cost
        self._cost_by_weight[queued.weight] += queued.unit.cost

    def remove(self, queued: QueuedUnit) -> None:
        """Count a unit no longer."""
        who = claimant(queued)
        self._costs[who] -= queued.unit.cost
        self._cost_by_weight[queued.weight] -= queued.unit.cost
        if self._costs[who] <= 0:
            del self._costs[who]
            self._weights[queued.weight] -= 1
            self.weight = self.weight - queued.weight if self._costs else 0.0  # rounding does not add up


def claimant(queued: QueuedUnit) -> tuple[Hashable, float]:
    """Return who a unit counts for: its client, else its request, at its weight."""
    return queued.request if queued.client is None else queued.client, queued.weight


class Drain:
    """How fast a model's queue empties while it has the device."""

    def __init__(self) -> None:
        self._cost_model, self._times = CostModel(), RequestTimes()
        # Cost units and seconds of batches that left others waiting, both fading.
        self._cost = self._seconds = 0.0

    def record(self, cost: int, seconds: float, *, loaded: bool, requests: int = 1, left: int = 0) -> None:
        """Record a batch; `loaded` says whether it left others waiting, as full batches do.

        `requests` is of whom it held units, and `left` the cost of their units that still wait.
        """
        self._cost_model.record(cost, seconds)
        self._times.record(cost, seconds, requests=requests, left=left, loaded=loaded)
        if loaded:
            self._cost = self._cost * _MEMORY + cost
            self._seconds = self._seconds * _MEMORY + seconds

    def seconds(self, cost: float) -> float:
        """Return how long so many cost units take; 0 before the first measurement."""
        if not cost:
            return 0.0
        return cost * self._seconds / self._cost if self._cost else self.alone_s(cost)

    def measured_s(self, cost: float, requests: int = 1) -> float:
        """Return how long so many cost units of so many requests take at least, by those that were as large."""
        seconds = self._times.seconds(cost, requests)
        return seconds if self._cost else min(seconds, self.alone_s(cost))

    def alone_s(self, cost: float) -> float:
        """Return how long a batch of so many cost units runs, whatever its overhead; 0 before the first measurement."""
        return self._cost_model.predict(cost) or 0.0


@dataclass(slots=True)
class _Share:
    tag: float
    since: float
    weight: float = 1.0


class DeviceShares(Generic[Model]):
    """The time of a device, shared among models by the weight of all who wait for each: start-time fair queueing.

    P. Goyal, H. M. Vin and H. Cheng, "Start-time Fair Queueing", ACM SIGCOMM 1996: what a model used of the device,
    over its weight, is its tag, and the least one is next. A model that begins to wait is not compensated for the time
    before.
    """

    def __init__(self) -> None:
        self._shares: dict[Model, _Share] = {}
        self._waiting: frozenset[Model] = frozenset()
        self._virtual_time = 0.0
        # Who is to have the next batch for its age, and whether one had the last: every other batch at most.
        self._aged: Model | None = None
        self._led_by_age = False

    def order(self, waiting: Mapping[Model, tuple[float, float]], now: float) -> list[Model]:
        """List the models that wait, whose turn it is first; one that got nothing for long may be before its turn.

        Args:
            waiting: By model: the weight of all who wait for it, and since when the first of them has.
            now: Seconds.
        """
        for model, (weight, oldest) in waiting.items():
            share = self._shares.setdefault(model, _Share(self._virtual_time, now))
            if model not in self._waiting:
                share.tag, share.since = max(share.tag, self._virtual_time), oldest
            share.weight = weight
        self._waiting = frozenset(waiting)
        shares = self._shares
        longest = min(waiting, key=lambda each: shares[each].since, default=None)
        # A model that few ask for would wait for minutes beside hundreds.
        aged = longest is not None and not self._led_by_age and shares[longest].since + AGE_S <= now
        self._aged = longest if aged else None
        return sorted(waiting, key=lambda each: (each != self._aged, shares[each].tag, waiting[each][1]))

    def take(self, model: Model, seconds: float, now: float) -> None:
        """Count a batch that is about to run, by its predicted time."""
        share = self._shares.setdefault(model, _Share(self._virtual_time, now))
        least = min((self._shares[each].tag for each in self._waiting), default=self._virtual_time)
        self._virtual_time = max(self._virtual_time, least)
        self._led_by_age = model == self._aged
        share.since = now
        self.charge(model, seconds)

    def served(self, model: Model, now: float) -> None:
        """Note a batch in the time of others: its model does not wait since before."""
        self._shares[model].since = now

    def charge(self, model: Model, seconds: float) -> None:
        """Count time of the device, or, where it is negative, less than was predicted."""
        share = self._shares.get(model)
        if share is not None:
            share.tag += seconds / share.weight

    def waited_s(self, model: Model, now: float) -> float:
        """Return for how long a model that waits has had no batch."""
        return now - self._shares[model].since

    def forget(self, model: Model) -> None:
        """Forget a model that is not served any more."""
        self._shares.pop(model, None)
        self._waiting -= {model}

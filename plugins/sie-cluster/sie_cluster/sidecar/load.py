"""What a sidecar holds, by cost: how much of each model, and whether that is about all it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sie_cluster.messages.health import ModelReport, Vitals
from sie_cluster.messages.work import WorkHead, batch_bytes
from sie_cluster.settings import ClusterSettings

SATURATED_FROM, SATURATED_UNTIL = 0.9, 0.7
"""Shares of the cost that is taken at a time."""


def most_cost(settings: ClusterSettings) -> int:
    """Give the cost that a worker takes at a time."""
    return settings.max_concurrent_batches * batch_bytes(settings)


class Load:
    """The work of one sidecar. Costs are those of `WorkHead.cost`.

    Args:
        most_cost: What is taken at a time.
        on_saturated: Called when it begins or ends to hold about that much.
    """

    def __init__(self, most_cost: int, on_saturated: Callable[[], None]) -> None:
        self._most_cost, self._on_saturated = most_cost, on_saturated
        self.of_model: Counter[str] = Counter()
        """The cost held of each model."""
        self.slices: Counter[str] = Counter()
        """The slices held of each model."""
        self.cost = 0
        """The cost held."""
        self.saturated = False

    def take(self, head: WorkHead) -> None:
        """Count a slice."""
        self._add(head, 1)

    def leave(self, head: WorkHead) -> None:
        """Count a slice no more."""
        self._add(head, -1)

    def models(self, vitals: Vitals) -> dict[str, ModelReport]:
        """Describe the models that the adapter process has or is sent work for, with what is held of each."""
        told = {name: ModelReport("loading") for name in self.slices} | dict(vitals.models)
        return {
            name: model._replace(queued_cost=self.of_model[name], held=self.slices[name])
            for name, model in told.items()
        }

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

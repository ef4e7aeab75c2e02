"""What forms batches: a pure, synchronous object a model, driven by the engine with its own clock."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from sie_core.contracts.family.adapter import Unit

AGE_S: Final = 5.0
"""Seconds after which who got nothing is served before others, whatever their shares."""


@dataclass(slots=True, eq=False)
class QueuedUnit:
    """A unit that waits for its run. `request` is any hashable token that tells requests apart."""

    unit: Unit
    request: Hashable
    enqueued_at: float
    deadline: float | None = None
    """The same for all units of a request."""
    client: Hashable | None = None
    """Whoever sent the request, where that is known: all requests of a client have one weight together."""
    weight: float = 1.0
    """The share of its request, or of its client, beside others."""
    slices: int = 1
    """In how many requests like its own the client's one was cut."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Units of one key, cheapest first; they run together."""

    units: tuple[QueuedUnit, ...]
    key: Hashable
    cost: int
    predicted_s: float | None
    """The predicted run time; None before anything was measured."""
    requests: int = field(default=1)
    large: bool = False
    """Whether its requests are large beside others that come just now: a batch of those may preempt its run."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is full. A single unit above a limit still runs, alone."""

    max_cost: int
    max_requests: int
    max_run_s: float | None
    """Predicted run time; None for no limit. A batch may always take twice what its first unit alone would, so that a
    limit near what every run costs, whatever it holds, does not make a batch of each unit."""
    max_wait_s: float
    """How long the oldest unit may wait for company; only ever spent while the device is busy."""


class BatchPolicy(Protocol):
    """Queues the units of one model and forms its batches.

    Never called from two threads at once. It has no clock, no thread and no lock of its own: times are seconds of the
    caller's monotonic clock.
    """

    def add(self, units: Sequence[QueuedUnit]) -> None:
        """Queue units in this order."""
        ...

    def cancel(self, request: Hashable) -> int:
        """Drop every queued unit of `request`; return how many. Dropped units never run."""
        ...

    def expire(self, now: float) -> set[Hashable]:
        """Drop the queued units of every request whose deadline is past, or cannot be met; return those requests."""
        ...

    def take(
        self,
        now: float,
        device_busy: bool,
        most_s: float | None = None,
        preempting: bool = False,
        hold_s: float | None = None,
    ) -> Batch | None:
        """Form the next batch, or None where nothing is queued or, with a busy device, waiting may fill it further.

        Whatever comes later, a unit runs within `AGE_S`, the batch that is on the device then, and two batches for each
        unit that was queued before it.

        Args:
            now: Seconds.
            device_busy: Whether the device has a batch already.
            most_s: The predicted run time beyond which a request is large beside the short ones that come just now, and
                would hold them up; None where none come.
            preempting: Whether the batch would preempt a long one, of this model or another: None unless the next
                request in turn is short. The requests of a policy without this parameter preempt nothing.
            hold_s: For how long the batch should hold the device at most, by prediction, as it runs to its end and
                short requests of other models come just now; longer where so short batches would cost much of the
                throughput. None where none come. A policy without this parameter is not told.
        """
        ...

    def ready_at(self, now: float) -> float | None:
        """When `take` with a busy device will give a batch if nothing else comes; None where nothing is queued."""
        ...

    def oldest(self) -> float | None:
        """When the unit that has waited longest for its turn was queued; None where nothing is."""
        ...

    def record(self, batch: Batch, seconds: float) -> None:
        """Learn how long a batch ran."""
        ...

    @property
    def queued_cost(self) -> int:
        """Cost units queued."""
        ...

    @property
    def queued_units(self) -> int:
        """Units queued."""
        ...


BatchPolicyFactory = Callable[[BatchLimits], BatchPolicy]
"""Makes the policy of one model; registered by name, chosen by `SIE_BATCH_POLICY`."""

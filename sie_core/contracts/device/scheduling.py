"""The scheduler interface: one synchronous object that decides which work runs next.

The engine calls it and passes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

from sie_core.contracts.backend.requests import Priority
from sie_core.contracts.family.adapter import Unit


class QueuedModel(Hashable, Protocol):
    """A loaded model. A reload makes another one, and both may serve for some time."""

    @property
    def id(self) -> str:
        """The id it is listed under."""
        ...


class QueuedRequest(Hashable, Protocol):
    """A request that has work for the device. Its units come in one or several calls of `Scheduler.add`."""

    @property
    def model(self) -> QueuedModel:
        """The model it asks."""
        ...

    @property
    def client(self) -> Hashable | None:
        """The sender; None if unknown."""
        ...

    @property
    def priority(self) -> Priority | None:
        """Its place among the requests of its client."""
        ...

    @property
    def deadline(self) -> float | None:
        """Deadline of the answer, in seconds of the engine's clock."""
        ...

    @property
    def admitted(self) -> bool:
        """Whether some of its units were added before: then it must not be refused any more."""
        ...

    @property
    def more_cost(self) -> int:
        """The estimated cost of its units that are still to be added."""
        ...


@dataclass(slots=True, eq=False)
class QueuedUnit:
    """A unit that waits for its run."""

    unit: Unit
    request: QueuedRequest


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Units of one model and one key, cheapest first; they run together."""

    model: QueuedModel
    units: tuple[QueuedUnit, ...]
    cost: int
    _: KW_ONLY
    predicted_s: float | None = None
    """The predicted run time; None before anything was measured."""
    preemptible: bool = False
    """Whether the engine is to ask for shorter batches while it runs, on a device and runner that can be preempted."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Cost and units of a full batch of the model. A single unit above a limit still runs, alone."""

    max_cost: int
    max_requests: int
    max_run_s: float | None = None
    """Predicted run time; None for no limit."""
    _: KW_ONLY
    weight: float = 1.0
    """Weight of the model's share of the device while others wait."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bound on the queue of a device."""

    max_cost: int
    """Cost units of all models that may wait."""


class Scheduler(Protocol):
    """Queues the units of every model on one device, refuses requests and forms batches.

    Never called from two threads at once. It has neither clock, thread nor lock: times are seconds of the caller's
    monotonic clock, and never decrease.
    """

    def add_model(self, model: QueuedModel, limits: BatchLimits) -> None:
        """Serve a model from now on."""
        ...

    def remove_model(self, model: QueuedModel) -> None:
        """Forget a model without waiting units."""
        ...

    def add(self, request: QueuedRequest, units: Sequence[QueuedUnit], now: float) -> None:
        """Queue units of a request, in this order.

        Raises:
            InferenceError: `QUEUE_FULL`, with nothing queued: the request finds no room, or its answer would come after
                its deadline. Never for a request that was admitted before.
        """
        ...

    def next(self, now: float, *, ahead: bool = False, within: Batch | None = None) -> Batch | None:
        """Form the next batch.

        Args:
            now: Seconds.
            ahead: Whether it would be launched behind a batch that runs. None keeps it back; the engine asks again
                when that one has ended, or more units have come.
            within: The preemptible batch that would be interrupted; None is returned unless the new batch is short
            compared with it.

        Returns:
            The batch. Without `ahead` and `within`, None only if nothing waits.
        """
        ...

    def late(self, now: float) -> Sequence[QueuedRequest]:
        """Drop the requests whose deadline is past, or cannot be met any more; return them. Called before `next`."""
        ...

    def ran(self, batch: Batch, seconds: float | None, now: float) -> None:
        """Note that a batch has left the device.

        Args:
            batch: As returned by `next`, or a part of a failed one that was retried.
            seconds: How long it ran; None if it failed.
            now: Seconds.
        """
        ...

    def cancel(self, request: QueuedRequest) -> int:
        """Drop every queued unit of a request; return their number. Dropped units never run."""
        ...

    def waiting(self, model: QueuedModel) -> tuple[int, int]:
        """Return the number and the cost of a model's waiting units."""
        ...


SchedulerFactory = Callable[[QueueLimits], Scheduler]
"""Makes the scheduler of a device; registered by name, chosen by `SIE_SCHEDULER`."""

"""The slices that a sidecar holds: delivered, and not yet answered."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sie_cluster.messages.work import WorkHead
from sie_cluster.queue.payloads.offers import Offer
from sie_core.contracts import Delivery, Pull, Trace

REMEMBERED = 4096
MOST_SHARED = 2
"""The last delivery of a slice at which it shares the adapter process with others."""
FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 4.0
"""Bounds of how long a slice stays at the queue that comes again and fails here."""


@dataclass(slots=True, eq=False)
class Slice:
    """One of them."""

    number: int
    """Its number at the adapter process."""
    head: WorkHead
    delivery: Delivery
    pull: Pull
    frame: bytes = b""
    """The slice; empty while it is fetched."""
    sent: bool = False
    """Whether the adapter process has it."""
    loading: bool = False
    """Whether it waits there for a load."""
    credited: bool = False
    """Whether its pull has its credit back already."""
    offer: Offer | None = None
    """Where its result can be fetched, if it is larger than a message."""
    answered: bool = False
    """Whether its result is there, and waits for the broker at most."""
    since: float = field(default_factory=time.monotonic)
    """When it was delivered."""
    trace: Trace | None = None
    """Where it is recorded."""
    how: str | None = None
    """How it ended, as it is counted."""

    @property
    def alone(self) -> bool:
        """Whether it shares the adapter process with no other.

        Its gateway says so where an adapter process ended with it. A second delivery is mostly work that a worker gave
        back as it drained; from the third on the slice may be what ends workers together with their sidecars.
        """
        return self.head.alone or self.delivery.attempt > MOST_SHARED


class Recent:
    """A set of texts that remembers those added last."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def __contains__(self, text: str) -> bool:
        return text in self._texts

    def add(self, text: str) -> None:
        """Remember a text, and the oldest no more where there are too many."""
        self._texts[text] = None
        if len(self._texts) > REMEMBERED:
            del self._texts[next(iter(self._texts))]


def pause_s(attempt: int) -> float:
    """Say when a slice that failed here is given to a worker again: at once at first, so that another takes it."""
    return 0.0 if attempt == 1 else min(MOST_PAUSE_S, FIRST_PAUSE_S * 2 ** (attempt - 2))

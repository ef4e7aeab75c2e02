"""Brings slices to the adapter process: fetched where they are offered, once it has their config, and room."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from sie_cluster.messages.frames import FrameError
from sie_cluster.programs.memory import sidecar_bytes
from sie_cluster.queue.payloads.fetching import Fetcher
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.adapter.awaiting_config import AwaitingConfig
from sie_cluster.sidecar.adapter.dispatching import Dispatch
from sie_cluster.sidecar.adapter.link import Link
from sie_cluster.sidecar.held import Slice
from sie_cluster.sidecar.queue.large_slices import LargeSlices
from sie_cluster.sidecar.queue.results import failure
from sie_core.contracts import InferenceError, QueueError

FETCHED_PART = 1 / 4
"""Part of a sidecar's memory for slices larger than a message."""
MOST_FETCHES = 6
"""The delivery of a slice, for whatever reason it came again, from which on it is not given back where it cannot be
fetched: its client is told to retry, after 7.5 s in pauses where every delivery failed."""

log = logging.getLogger(__name__)


class Host(Protocol):
    """The sidecar."""

    link: Link
    """The adapter process."""

    def is_inbox(self, subject: str) -> bool:
        """Whether a subject is the inbox of a gateway."""
        ...

    def lacks_config(self) -> None:
        """Take that work came for a config that the adapter process does not have yet."""
        ...


class Owner(Protocol):
    """Who holds the slices."""

    def holds(self, held: Slice) -> bool:
        """Whether a slice is held still."""
        ...

    def drop(self, held: Slice, how: str | None = None) -> None:
        """Acknowledge a slice, counted as ended somehow, and hold it no more."""
        ...

    def finish(self, held: Slice, frame: bytes, how: str) -> None:
        """Send a result."""
        ...

    def hand_back(self, slices: Sequence[Slice], *, failed: bool) -> None:
        """Give slices back to the queue: at once, or where something failed here after a pause that grows."""
        ...


class Forwarding:
    """The slices between their delivery and their result.

    Args:
        settings: The settings in force.
        fetcher: Fetches those that are larger than a message.
        host: The sidecar.
        owner: Holds the slices.
    """

    def __init__(self, settings: ClusterSettings, fetcher: Fetcher, host: Host, owner: Owner) -> None:
        self._host, self._owner = host, owner
        self._most_fetches = min(MOST_FETCHES, settings.max_deliver - 1)
        self._large = LargeSlices(fetcher, self, int(sidecar_bytes(settings) * FETCHED_PART))
        self.dispatch = Dispatch(settings, self._send)
        self.awaiting = AwaitingConfig(self)

    def take(self, held: Slice) -> None:
        """Send a slice on, once it is here, its config is there and there is room."""
        if not held.frame:
            self._large.fetch(held)
        elif self.awaiting.lacks(held.head):
            self.awaiting.take(held)
            self._host.lacks_config()
        else:
            self.dispatch.take(held)

    def leave(self, held: Slice) -> None:
        """Have a slice wait no more, wherever it does."""
        self.dispatch.remove(held)
        self.awaiting.remove(held)
        if held.head.offer is not None:
            self._large.leave(held)

    def close(self) -> None:
        """Fetch no more."""
        self._large.close()

    def _send(self, held: Slice) -> None:
        self._host.link.send(held.number, held.frame)
        held.frame = b""  # it may be large, and its result larger still
        if held.head.offer is not None:
            self._large.leave(held)

    def is_inbox(self, subject: str) -> bool:
        """Whether a subject is the inbox of a gateway."""
        return self._host.is_inbox(subject)

    def config_came(self, held: Slice) -> None:
        """Send a slice on whose config is there now."""
        self.dispatch.take(held)

    def config_is_late(self, held: Slice) -> None:
        """Give a slice back whose config did not come in time."""
        log.warning("%s needs a config that has not come; it goes back to the queue", held.head.id)
        self._owner.hand_back([held], failed=True)

    def fetched(self, held: Slice) -> None:
        """Send a slice on whose frame is here now."""
        if self._owner.holds(held):
            self.take(held)

    def not_fetched(self, held: Slice, problem: QueueError | FrameError) -> None:
        """Give a slice back that could not be fetched, or refuse it."""
        if isinstance(problem, FrameError):
            log.error("the slice %s is dropped: %s", held.head.id, problem)
            self._owner.drop(held, "refused")
            return
        log.warning("the slice %s could not be fetched: %s", held.head.id, problem)
        if problem.failure == "CONFIG":
            told = "A worker cannot read what its gateway stored; its log says why."
            self._owner.finish(held, failure(held.head, InferenceError("INTERNAL_ERROR", told)), "refused")
        elif problem.failure == "NOT_FOUND":
            self._owner.drop(held)  # nobody waits for it, or its gateway sends it again
        elif held.delivery.attempt < self._most_fetches:
            self._owner.hand_back([held], failed=True)
        else:
            told = (
                f"A worker could not fetch what the gateway holds for it, at delivery {held.delivery.attempt}; retry."
            )
            self._owner.finish(held, failure(held.head, InferenceError("QUEUE_UNAVAILABLE", told)), "refused")

"""Brings slices to the adapter process: fetched where they are offered, once it has their config, and room."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
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
        link: Gives the adapter process.
        fetcher: Fetches those that are larger than a message.
        is_inbox: Whether a subject is the inbox of a gateway.
        owner: Holds the slices.
        on_lack: Called when work comes for a config that the adapter process does not have yet.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        link: Callable[[], Link],
        fetcher: Fetcher,
        is_inbox: Callable[[str], bool],
        owner: Owner,
        on_lack: Callable[[], None],
    ) -> None:
        self._link, self._owner, self._on_lack = link, owner, on_lack
        self._most_fetches = min(MOST_FETCHES, settings.max_deliver - 1)
        self._large = LargeSlices(
            fetcher, is_inbox, self._fetched, self._not_fetched, int(sidecar_bytes(settings) * FETCHED_PART)
        )
        self.dispatch = Dispatch(settings, self._send)
        self.awaiting = AwaitingConfig(self.dispatch.take, self._config_is_late)

    def take(self, held: Slice) -> None:
        """Send a slice on, once it is here, its config is there and there is room."""
        if not held.frame:
            self._large.fetch(held)
        elif self.awaiting.lacks(held.head):
            self.awaiting.take(held)
            self._on_lack()
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
        self._link().send(held.number, held.frame)
        held.frame = b""  # it may be large, and its result larger still
        if held.head.offer is not None:
            self._large.leave(held)

    def _config_is_late(self, held: Slice) -> None:
        log.warning("%s needs a config that has not come; it goes back to the queue", held.head.id)
        self._owner.hand_back([held], failed=True)

    def _fetched(self, held: Slice) -> None:
        if self._owner.holds(held):
            self.take(held)

    def _not_fetched(self, held: Slice, problem: QueueError | FrameError) -> None:
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

"""The placement of one sidecar: what it heard and counts, turned into what it pulls."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from sie_cluster.fleet.health.workers import Worker, Workers
from sie_cluster.fleet.placement.keys import key_of
from sie_cluster.fleet.placement.peers import ASKED_BEATS, QUIET_BEATS, Peer
from sie_cluster.fleet.placement.placement import Placement
from sie_cluster.fleet.placement.waiting import Behind, Seen
from sie_cluster.messages.health import WorkerReport
from sie_cluster.messages.wishes import Wish
from sie_cluster.messages.work import batch_bytes
from sie_cluster.settings import ClusterSettings


class Came(NamedTuple):
    """What a worker was given of one key."""

    delivered: int
    waiting: int
    """Messages that nobody had been given by then."""
    since: float
    """From when on that is counted, in monotonic seconds."""


class Placing:
    """That of one worker.

    Args:
        settings: Its own; others are taken to have the same.
        worker: Its name.
        own: Gives what it tells of itself.
        workers: Those that are heard.
        load: Has a model loaded.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        worker: str,
        own: Callable[[], WorkerReport],
        workers: Workers,
        load: Callable[[Wish], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own, self._workers, self._load, self._clock = own, workers, load, clock
        beat_s = settings.health_publish_interval_ms / 1000
        busy = batch_bytes(settings), settings.batcher_max_batch_requests
        self._placement = Placement(worker, beat_s, settings.max_loras_per_model, *busy)
        self._behind = Behind()

    @property
    def behind(self) -> tuple[str, ...]:
        """The keys whose work waits longer than a load takes."""
        return self._behind.keys

    def decide(self, wanted: Iterable[str], still: Collection[str] = ()) -> frozenset[str]:
        """Say which keys are pulled now, by subject; see `Placement.decide`."""
        decision = self._placement.decide(self._clock(), wanted, self._peers(), still)
        for wish in decision.loads:
            self._load(wish)
        return decision.pulls

    def look(self, came: Mapping[str, Came | None]) -> None:
        """Take what came of each key that is pulled, by subject; None where nothing did, and nothing could."""
        peers, now = self._peers(), self._clock()
        seen = dict[str, Seen | None]()
        for key in filter(None, map(key_of, came)):
            _, model = peers[0].models.get(key.model, ("", None))
            if key.is_shared or (model is not None and model.state == "loaded"):
                load_s = None if model is None else model.load_s
                pullers = sum(key.subject in peer.report.pulled for peer in peers[1:]) + 1
                each = came[key.subject]
                seen[key.subject] = each and Seen(each.waiting, each.delivered, now - each.since, load_s, pullers)
        self._behind.look(now, seen)

    def away(self) -> None:
        """Take that the broker is away: nobody is silent for that."""
        self._workers.greet()

    def overdue(self) -> list[str]:
        """Name the workers whose heartbeats are overdue."""
        own = self._own().worker
        late = (each.report.worker for each in self._workers if self._beats(each) > ASKED_BEATS)
        return [name for name in late if name != own]

    def _peers(self) -> list[Peer]:
        own = self._own()
        others = (each for each in self._workers if each.report.worker != own.worker)
        return [Peer(own), *(Peer(each.report, self._beats(each) > QUIET_BEATS) for each in others)]

    def _beats(self, worker: Worker) -> float:
        return (self._clock() - worker.heard) / worker.report.beat_s

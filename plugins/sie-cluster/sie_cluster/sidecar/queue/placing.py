"""The placement of one sidecar: what it heard and counts, turned into what it pulls."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from sie_cluster.fleet.health.workers import Worker, Workers
from sie_cluster.fleet.placement.keys import Key, key_of
from sie_cluster.fleet.placement.peers import ASKED_BEATS, QUIET_BEATS, Peer
from sie_cluster.fleet.placement.placement import Placement
from sie_cluster.fleet.placement.waiting import Behind, Seen
from sie_cluster.messages.health import WorkerReport
from sie_cluster.messages.wishes import Wish
from sie_cluster.messages.work import batch_bytes
from sie_cluster.settings import ClusterSettings


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

    def decide(self, wanted: Iterable[str], still: Collection[str]) -> frozenset[str]:
        """Say which keys are pulled now, by subject; see `Placement.decide`."""
        decision = self._placement.decide(self._clock(), wanted, self._peers(), still)
        for wish in decision.loads:
            self._load(wish)
        return decision.pulls

    def look(self, passed_s: float, waiting: Mapping[str, int], delivered: Mapping[str, int]) -> None:
        """Take what was seen of keys that are pulled.

        Args:
            passed_s: Since the last look.
            waiting: Messages that this worker was not given, by key.
            delivered: Messages that it was given since the last look.
        """
        peers = self._peers()
        own, seen = peers[0], dict[str, Seen]()
        for key in filter(None, map(key_of, waiting)):
            _, model = own.models.get(key.model, ("", None))
            if key.is_shared or (model is not None and model.state == "loaded"):
                load_s = None if model is None else model.load_s
                given, others = delivered.get(key.subject, 0), _others(key, peers)
                left = waiting[key.subject] - sum(peer.held(key) for peer in others)
                seen[key.subject] = Seen(max(0, left), given, load_s, 1 + len(others))
        self._behind.look(self._clock(), passed_s, seen)

    def overdue(self) -> list[str]:
        """Name the workers whose heartbeats are overdue."""
        own = self._own().worker
        late = (each.report.worker for each in self._workers if self._beats(each) > ASKED_BEATS)
        return [name for name in late if name != own]

    def _peers(self) -> list[Peer]:
        own = self._own()
        others = (worker for worker in self._workers if worker.report.worker != own.worker)
        return [Peer(own), *(Peer(each.report, self._beats(each) > QUIET_BEATS) for each in others)]

    def _beats(self, worker: Worker) -> float:
        return (self._clock() - worker.heard) / worker.report.beat_s


def _others(key: Key, peers: Sequence[Peer]) -> Sequence[Peer]:
    return [peer for peer in peers[1:] if key.subject in peer.report.pulled]

"""A lane: all the work that the same workers take, and which lanes have living workers. The clock is given."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from sie_cluster.fleet.health.workers import MISSED_BEATS
from sie_cluster.messages.health import WorkerReport
from sie_cluster.queue.subjects import ANY_PROFILE

RESTART_S = 15.0
"""An adapter process that is started again is back by then, and so are heartbeats that a broker, or a gateway that
stood still, held up: work may wait for them. Who leaves as it should says so before."""
LOOK_S = 1.0
"""Between two looks for workers that are not heard any more."""


Labels = tuple[str, str]
"""Machine profile and bundle: what metrics tell of a lane, as clients may invent names of resource pools."""


class Lane(NamedTuple):
    """The work that the same workers take, whatever its model."""

    pool: str
    """The queue pool."""
    resource_pool: str
    profile: str
    bundle: str

    @property
    def labels(self) -> Labels:
        """What metrics tell of it."""
        return self.profile, self.bundle


class Lanes:
    """Those with living workers.

    Args:
        on_served: Called with each lane that got its first worker.
        clock: Monotonic seconds.
    """

    def __init__(
        self, on_served: Callable[[Lane], None] = lambda lane: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_served, self._clock = on_served, clock
        self._workers: dict[Lane, set[str]] = {}
        """The names of each lane's living workers; no lane without any."""
        self._known: dict[str, tuple[WorkerReport, float]] = {}
        """The last report of each worker, and until when it counts if no other comes."""
        self._look_at = clock()

    def is_served(self, lane: Lane) -> bool:
        """Whether a lane has a living worker."""
        self._look()
        return lane in self._workers

    def profiles(self) -> set[str]:
        """List the machine profiles of living workers."""
        self._look()
        return {lane.profile for lane in self._workers}

    def heard(self, report: WorkerReport) -> None:
        """Take a worker's heartbeat; takes as long with a thousand workers as with one."""
        now = self._clock()
        before, until = self._known.get(report.worker, (None, now))
        until = now + MISSED_BEATS * report.beat_s + RESTART_S if report.up else min(until, now + RESTART_S)
        self._known[report.worker] = report, until
        if now >= until:  # it never took work, or does not any more
            self._forget(report.worker)
            return
        left, lanes = () if before is None else _lanes_of(before), _lanes_of(report)
        if left == lanes:
            return
        for lane in set(left).difference(lanes):
            self._leave(lane, report.worker)
        for lane in lanes:
            is_first = lane not in self._workers
            self._workers.setdefault(lane, set()).add(report.worker)
            if is_first:
                self._on_served(lane)

    def _look(self) -> None:
        """Forget the workers that do not count any more."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        for name in [name for name, (_, until) in self._known.items() if now >= until]:
            self._forget(name)

    def _forget(self, worker: str) -> None:
        report, _ = self._known.pop(worker)
        for lane in _lanes_of(report):
            self._leave(lane, worker)

    def _leave(self, lane: Lane, worker: str) -> None:
        served = self._workers.get(lane, set())
        served.discard(worker)
        if not served:
            self._workers.pop(lane, None)


def _lanes_of(report: WorkerReport) -> tuple[Lane, ...]:
    if report.draining:
        return ()
    profiles = dict.fromkeys((report.profile, ANY_PROFILE))
    return tuple(Lane(report.pool, report.resource_pool, profile, report.bundle) for profile in profiles)

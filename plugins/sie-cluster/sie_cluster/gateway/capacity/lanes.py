"""A lane: all the work that the same workers take, and which lanes have living workers. The clock is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

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
        reports: Gives what the workers say that were heard of lately.
        on_served: Called with each lane that got its first worker.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        reports: Callable[[], Iterable[WorkerReport]],
        on_served: Callable[[Lane], None] = lambda lane: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reports, self._on_served, self._clock = reports, on_served, clock
        self._workers: dict[Lane, dict[str, WorkerReport]] = {}
        """The living workers of each lane by their names; no lane without any."""
        self._known: dict[str, tuple[WorkerReport, float]] = {}
        """The last report of each worker, and when it last took work."""
        self._look_at = clock()

    def workers(self, lane: Lane) -> list[WorkerReport]:
        """List the living workers of a lane."""
        if self._clock() >= self._look_at:
            self.look()
        return list(self._workers.get(lane, {}).values())

    def heard(self, report: WorkerReport) -> None:
        """Take a worker's heartbeat; takes as long with a thousand workers as with one."""
        now = self._clock()
        before, up_at = self._known.get(report.worker, (None, -RESTART_S))
        self._known[report.worker] = report, now if report.up else up_at
        if now - self._known[report.worker][1] >= RESTART_S:  # it never took work
            self._forget(report.worker)
            return
        left = () if before is None else _lanes_of(before)
        lanes = _lanes_of(report)
        for lane in set(left).difference(lanes):
            self._leave(lane, report.worker)
        for lane in lanes:
            served = self._workers.setdefault(lane, {})
            is_first = not served
            served[report.worker] = report
            if is_first:
                self._on_served(lane)

    def look(self) -> None:
        """Take what every worker last said, and forget those that were not heard lately."""
        now = self._clock()
        self._look_at = now + LOOK_S
        for report in self._reports():
            self.heard(report)
        for name in [name for name, (_, up_at) in self._known.items() if now - up_at >= RESTART_S]:
            self._forget(name)

    def _forget(self, worker: str) -> None:
        report, _ = self._known.pop(worker)
        for lane in _lanes_of(report):
            self._leave(lane, worker)

    def _leave(self, lane: Lane, worker: str) -> None:
        served = self._workers.get(lane, {})
        served.pop(worker, None)
        if not served:
            self._workers.pop(lane, None)


def _lanes_of(report: WorkerReport) -> tuple[Lane, ...]:
    if report.draining:
        return ()
    profiles = dict.fromkeys((report.profile, ANY_PROFILE))
    return tuple(Lane(report.pool, report.resource_pool, profile, report.bundle) for profile in profiles)

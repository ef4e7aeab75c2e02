"""A lane: all the work that the same workers take, and which lanes have living workers. The clock is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sie_core.cluster.messages.health import WorkerReport
from sie_core.cluster.queue.subjects import ANY_PROFILE

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
        self._workers: dict[Lane, list[WorkerReport]] = {}
        self._known: dict[str, tuple[WorkerReport, float]] = {}
        """What each worker said last, and when it was last heard to take work."""
        self._look_at = clock()

    def workers(self, lane: Lane) -> list[WorkerReport]:
        """List the living workers of a lane."""
        if self._clock() >= self._look_at:
            self.look()
        return self._workers.get(lane, [])

    def look(self) -> None:
        """Look which workers live; heartbeats are a reason to."""
        now = self._clock()
        self._look_at = now + LOOK_S
        for report in self._reports():
            _, up_at = self._known.get(report.worker, (report, -RESTART_S))
            self._known[report.worker] = report, now if report.up else up_at
        self._known = {name: each for name, each in self._known.items() if now - each[1] < RESTART_S}
        before, self._workers = self._workers, {}
        for report, _ in self._known.values():
            if not report.draining:
                for profile in {report.profile, ANY_PROFILE}:
                    lane = Lane(report.pool, report.resource_pool, profile, report.bundle)
                    self._workers.setdefault(lane, []).append(report)
        for lane in self._workers.keys() - before.keys():
            self._on_served(lane)

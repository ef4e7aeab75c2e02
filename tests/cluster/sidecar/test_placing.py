"""What a sidecar says of a backlog by what its deliveries told."""

from __future__ import annotations

from dataclasses import replace

from sie_cluster.fleet.health.workers import Workers
from sie_cluster.fleet.placement.peers import QUIET_BEATS
from sie_cluster.messages.health import ModelReport, WorkerReport, encode_beat
from sie_cluster.queue.subjects import health_subject, work_subject
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.queue.placing import Came, Placing

from sie_core.contracts import Message

MODEL = "org/model"
SETTINGS = ClusterSettings()
WORK = work_subject(MODEL, SETTINGS.pool, SETTINGS.bundle)
OWN = WorkerReport(
    "w1", SETTINGS.pool, SETTINGS.bundle, up=True, pulled=frozenset({WORK}),
    models={MODEL: ModelReport("loaded", load_s=1.0)},
)  # fmt: skip


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def placing(own: WorkerReport, clock: Clock) -> tuple[Placing, Workers]:
    workers = Workers(clock=clock)
    return Placing(SETTINGS, "w1", lambda: own, workers, lambda wish: None, clock), workers


def hear(workers: Workers, report: WorkerReport) -> None:
    workers.heard(Message(health_subject(report.worker), encode_beat(report)))


def behind(pullers: int, waiting: int) -> bool:
    """After four looks, two seconds apart, at each of which 20 messages had come."""
    clock = Clock()
    deciding, workers = placing(OWN, clock)
    for _ in range(4):
        clock.now += 2.0
        for number in range(2, pullers + 1):
            hear(workers, replace(OWN, worker=f"w{number}", beat_s=5.0))
        deciding.look({WORK: Came(20, waiting, clock.now - 2.0)})
    return WORK in deciding.behind


def test_what_waits_is_shared_by_all_who_pull_it() -> None:
    assert behind(1, 50)
    assert not behind(1, 9)
    assert not behind(6, 50)


def test_a_worker_that_fell_silent_loses_keys_whose_work_waits_unless_the_broker_was_away() -> None:
    clock = Clock()
    idle = replace(OWN, pulled=frozenset(), models={})
    deciding, workers = placing(idle, clock)
    hear(workers, replace(OWN, worker="w2", beat_s=5.0))
    clock.now = QUIET_BEATS * 5.0
    assert deciding.decide([WORK], [WORK]) == frozenset()
    for _ in range(5):
        clock.now += 10.0
        deciding.away()
    assert deciding.decide([WORK], [WORK]) == frozenset()
    clock.now += QUIET_BEATS * 5.0 + 1.0
    assert deciding.decide([WORK]) == frozenset()
    assert deciding.decide([WORK], [WORK]) == {WORK}

"""What a sidecar counts of a backlog, before it says that the workers cannot keep up."""

from __future__ import annotations

from dataclasses import replace

from sie_cluster.fleet.health.workers import Workers
from sie_cluster.messages.health import ModelReport, WorkerReport, encode_beat
from sie_cluster.queue.subjects import health_subject, work_subject
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.queue.placing import Placing

from sie_core.contracts import Message

MODEL = "org/model"


def test_what_another_worker_holds_of_a_model_does_not_count_as_waiting() -> None:
    settings, now = ClusterSettings(), [0.0]
    work = work_subject(MODEL, settings.pool, settings.bundle)
    own = WorkerReport(
        "w1",
        settings.pool,
        settings.bundle,
        up=True,
        pulled=frozenset({work}),
        models={MODEL: ModelReport("loaded", load_s=1.0)},
    )
    workers = Workers(clock=lambda: now[0])
    placing = Placing(settings, "w1", lambda: own, workers, lambda wish: None, lambda: now[0])

    def behind(held: int) -> bool:
        """After four looks: this worker was given 20 messages since the last, and 50 are not acknowledged."""
        for _ in range(4):
            now[0] += 2.0
            models = {MODEL: ModelReport("loaded", held=held)}
            other = replace(own, worker="w2", models=models, beat_s=5.0)
            workers.heard(Message(health_subject("w2"), encode_beat(other)))
            placing.look(2.0, {work: 50}, {work: 20})
        return work in placing.behind

    assert not behind(held=48)
    assert behind(held=0)

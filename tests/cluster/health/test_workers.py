"""What is kept of workers: as long as they beat, each by its own interval."""

from __future__ import annotations

from dataclasses import replace

from sie_cluster.fleet.health.workers import Workers, comes_up
from sie_cluster.messages.health import (
    ModelReport,
    Vitals,
    WorkerReport,
    decode_beat,
    decode_vitals,
    encode_beat,
    encode_vitals,
)
from sie_cluster.queue.subjects import health_subject, work_subject

from sie_core.contracts import Message

MODELS = {"org/a": ModelReport("loaded", 1 << 30, 2.5, ("x", "y"), 77), "org/b": ModelReport("failed")}
REPORT = WorkerReport(
    "w1", "_default", "default", "team", "l4-spot", "l4", 2, up=True, held=3, queued_cost=77,
    models=MODELS, memory_used_bytes=5, memory_total_bytes=9, pulled=frozenset({"sie.work.x"}), config_hash="h",
    config_epoch=4, url="http://127.0.0.1:1", beat_s=2.0,
)  # fmt: skip


def beat(report: WorkerReport) -> Message:
    return Message(health_subject(report.worker), encode_beat(report))


def test_reports_and_vitals_are_read_as_they_were_written() -> None:
    assert decode_beat(encode_beat(REPORT, 5, b"status")) == decode_beat(encode_beat(REPORT, 5, b"status"))
    assert decode_beat(encode_beat(REPORT)).report == REPORT
    vitals = Vitals("l4", 1, 2, "http://127.0.0.1:1", MODELS)
    assert decode_vitals(encode_vitals(vitals)) == vitals


def test_a_worker_with_a_thousand_keys_is_heard_of() -> None:
    pulled = frozenset(work_subject(f"organisation/model-{number}", "_default", "default") for number in range(1000))
    report = replace(REPORT, pulled=pulled, models={f"org/model-{n}": ModelReport("loaded") for n in range(256)})
    frame = encode_beat(report)
    assert decode_beat(frame).report == report
    assert len(frame) < 100_000


def test_who_misses_three_of_its_own_heartbeats_is_forgotten_and_comes_up_again() -> None:
    now, up = [0.0], []
    workers = Workers(lambda before, after: up.append(comes_up(before, after)), clock=lambda: now[0])
    slow = replace(REPORT, worker="w2", beat_s=20.0)
    for message in (beat(REPORT), beat(slow), beat(REPORT)):
        workers.heard(message)
    now[0] = 6.0
    assert workers.reports() == {"w1": REPORT, "w2": slow}
    now[0] = 6.1
    assert workers.reports() == {"w2": slow}
    workers.heard(beat(replace(REPORT, up=False)))
    workers.heard(beat(REPORT))
    assert up == [True, True, False, False, True]

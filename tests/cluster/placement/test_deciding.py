"""What one worker decides by what it heard: whom it takes to be at a key, and for how long."""

from __future__ import annotations

from collections.abc import Sequence

from sie_cluster.fleet.placement.peers import Peer
from sie_cluster.fleet.placement.placement import AVOIDED_BEATS, PROMISED_BEATS, REST_S, Placement
from sie_cluster.messages.health import ModelReport, WorkerReport

from tests.cluster.placement.world import BEAT_S, work

KEY = work("org/asked")


def placement(worker: str) -> Placement:
    return Placement(worker, BEAT_S, 10, 1 << 20, 12)


def peer(name: str, models: int = 0, pulled: Sequence[str] = (), **own: ModelReport) -> Peer:
    """A worker with some models, and with those of `own` by the last part of their names."""
    told = {f"org/{name}-{number}": ModelReport("loaded") for number in range(models)}
    told |= {f"org/{model}": report for model, report in own.items()}
    return Peer(WorkerReport(name, "_default", "default", up=True, models=told, pulled=frozenset(pulled)))


def takes(deciding: Placement, now: float, *peers: Peer) -> bool:
    return KEY in deciding.decide(now, [KEY], peers).pulls


def test_a_worker_that_was_chosen_is_waited_for_whatever_else_it_says_and_no_longer_than_it_is_promised() -> None:
    other = placement("w1")
    assert not takes(other, 0.0, peer("w1", 2), peer("w0", 1))
    assert not takes(other, 1.0, peer("w1", 2), peer("w0", 3))
    assert takes(other, PROMISED_BEATS * BEAT_S, peer("w1", 2), peer("w0", 1))
    assert takes(other, PROMISED_BEATS * BEAT_S + 1.0, peer("w1", 2), peer("w0", 1))


def test_a_worker_that_did_not_take_what_it_was_chosen_for_is_avoided_for_a_while() -> None:
    other = placement("w1")
    assert not takes(other, 0.0, peer("w1", 2), peer("w0", 1))
    now = PROMISED_BEATS * BEAT_S
    assert takes(other, now, peer("w1", 2), peer("w0", 1))
    now += AVOIDED_BEATS * BEAT_S
    pulls = peer("w0", 1, [KEY])
    assert not takes(other, now, peer("w1", 2), pulls)
    assert not takes(other, now + 1.0, peer("w1", 2), peer("w0", 1))


def test_who_pulls_a_key_already_keeps_it_although_another_has_fewer_models() -> None:
    assert not takes(placement("w1"), 0.0, peer("w1"), peer("w0", 3, [KEY]))
    assert takes(placement("w0"), 0.0, peer("w0", 3, [KEY]), peer("w1"))


def test_all_who_have_a_busy_model_pull_it_and_one_of_them_once_it_has_been_calm_for_a_while() -> None:
    def pulling(held: int, cost: int, now: float) -> int:
        asked = ModelReport("loaded", held=held, queued_cost=cost)
        peers = [peer(name, 0, [KEY], asked=asked) for name in names]
        return sum(takes(decisions[name], now, *peers) for name in names)

    names = ["w0", "w1", "w2"]
    decisions = {name: placement(name) for name in names}
    assert pulling(4, 100, 0.0) == 3  # a batch's worth in all
    assert pulling(3, 100, 1.0) == 3
    assert pulling(3, 100, 0.5 + REST_S) == 3
    assert pulling(3, 100, 1.0 + REST_S) == 1
    assert pulling(1, 1 << 20, 2.0 + REST_S) == 3
    assert pulling(1, 100, 3.0 + REST_S) == 3


def test_a_key_that_a_worker_has_no_room_for_goes_to_one_that_has_and_else_stays() -> None:
    full = {f"m{number}": ModelReport("loaded", 100) for number in range(3)}

    def crowded(total: int, **models: ModelReport) -> WorkerReport:
        report = peer("w0", 0, [KEY], **full, **models).report
        return WorkerReport(
            "w0", "_default", "default", up=True, models=report.models, pulled=report.pulled,
            memory_used_bytes=100 * len(report.models), memory_total_bytes=total,
        )  # fmt: skip

    relief = peer("w1")
    for report, moves in (
        (crowded(300), True),
        (crowded(400), False),
        (crowded(400, asked=ModelReport("loaded", 100)), False),
    ):
        assert takes(placement("w1"), 0.0, relief, Peer(report)) == moves
        assert takes(placement("w0"), 0.0, Peer(report), relief) != moves
    no_room = WorkerReport("w1", "_default", "default", up=True, memory_used_bytes=90, memory_total_bytes=100)
    assert not takes(placement("w1"), 0.0, Peer(no_room), Peer(crowded(300)))
    assert takes(placement("w0"), 0.0, Peer(crowded(300)), Peer(no_room))


def test_the_size_of_a_model_that_is_loaded_nowhere_just_now_is_remembered() -> None:
    deciding = placement("w1")
    large, small = ModelReport("loaded", 200), {f"m{number}": ModelReport("loaded", 1) for number in range(8)}

    def full(**models: ModelReport) -> Peer:
        report = peer("w0", 0, [KEY], **models).report
        return Peer(
            WorkerReport(
                "w0", "_default", "default", up=True, models=report.models, pulled=report.pulled,
                memory_used_bytes=200, memory_total_bytes=300,
            )
        )  # fmt: skip

    assert not takes(deciding, 0.0, peer("w1"), full(asked=large, **small))
    assert takes(deciding, 1.0, peer("w1"), full(**small)), "on average models are small"

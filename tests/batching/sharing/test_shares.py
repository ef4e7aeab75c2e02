"""Whose turn it is among models, and what waits of whom."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sie_core.batching.sharing.shares import Claims, DeviceShares, Drain
from sie_core.contracts import QueuedUnit, Unit
from sie_core.contracts.device.batching import AGE_S


def served(weights, rounds, seconds=lambda model: 0.1):
    shares, now, runs = DeviceShares(), 0.0, []
    for _ in range(rounds):
        model = shares.order({name: (weight, 0.0) for name, weight in weights.items()}, now)[0]
        shares.take(model, seconds(model), now)
        now += seconds(model)
        runs.append(model)
    return runs


def test_models_share_the_device_by_the_weights_of_those_who_wait_for_them():
    assert Counter(served({"one": 1.0, "three": 3.0}, 40)) == {"one": 10, "three": 30}


def test_the_time_that_a_batch_takes_counts_and_not_its_cost():
    runs = Counter(served({"slow": 1.0, "fast": 1.0}, 44, seconds=lambda model: 1.0 if model == "slow" else 0.1))
    assert runs["fast"] == pytest.approx(10 * runs["slow"], abs=10)


def test_what_a_batch_took_beyond_its_prediction_is_charged():
    shares = DeviceShares()
    waiting = {"a": (1.0, 0.0), "b": (1.0, 0.0)}
    assert shares.order(waiting, 0.0)[0] == "a"
    shares.take("a", 0.1, 0.0)
    shares.charge("a", 0.3)
    order = []
    for _ in range(4):
        order.append(shares.order(waiting, 1.0)[0])
        shares.take(order[-1], 0.1, 1.0)
    assert order == ["b"] * 4


def test_a_model_that_nobody_asked_for_claims_nothing_for_that_time():
    shares = DeviceShares()
    for _ in range(100):
        shares.order({"busy": (1.0, 0.0)}, 0.0)
        shares.take("busy", 0.1, 0.0)
    runs = []
    for _ in range(10):
        runs.append(shares.order({"busy": (1.0, 0.0), "back": (1.0, 0.0)}, 0.0)[0])
        shares.take(runs[-1], 0.1, 0.0)
    assert Counter(runs) == {"busy": 5, "back": 5}


@given(weights=st.lists(st.sampled_from([0.25, 1.0, 500.0]), min_size=2, max_size=60), steps=st.integers(7, 64))
@settings(max_examples=40, deadline=None)
def test_no_model_waits_beyond_the_ageing_bound(weights, steps):
    seconds = steps / 64  # times add up exactly
    last = dict.fromkeys(range(len(weights)), 0.0)
    others = len(weights) - 1  # whenever one was served, all others have waited longer
    for number, model in enumerate(served(dict(enumerate(weights)), 400, lambda _: seconds)):
        assert number * seconds - last[model] < AGE_S + seconds * (1 + 2 * others)
        last[model] = number * seconds


def test_weights_count_among_models_that_have_all_waited_for_long():
    runs = Counter(served({"weighty": 100.0} | {f"light {number}": 0.25 for number in range(20)}, 200, lambda _: 1.0))
    assert runs["weighty"] == pytest.approx(100, abs=20)  # each light one once by its turn, then by its age alone


def test_a_model_that_is_unloaded_is_forgotten():
    shares = DeviceShares()
    shares.order({"gone": (1.0, 0.0)}, 0.0)
    shares.take("gone", 1.0, 0.0)
    shares.forget("gone")
    shares.charge("gone", 1.0)
    assert shares.order({}, 0.0) == []


def test_claims_count_the_cost_and_the_weight_of_each_client_once():
    claims = Claims()
    units = [QueuedUnit(Unit(0, cost, "k", None), request, 0.0, None, client) for cost, request, client in
             [(1, "r1", "c"), (2, "r2", "c"), (4, "r3", None)]]  # fmt: skip
    for unit in units:
        claims.add(unit)
    assert (len(claims), claims.weight) == (2, 2.0)
    assert (claims.cost_of(("c", 1.0)), claims.cost_of(("r3", 1.0)), claims.cost_of(("r1", 1.0))) == (3, 4, None)
    for unit in units:
        claims.remove(unit)
    assert (len(claims), claims.weight) == (0, 0.0)


def test_a_queue_drains_as_full_batches_did_and_as_any_batch_did_before_one_was_full():
    drain = Drain()
    assert drain.seconds(100) == 0.0
    drain.record(10, 0.5, loaded=False)
    assert drain.seconds(10) == pytest.approx(0.5)
    for _ in range(20):
        drain.record(1000, 1.0, loaded=True)
    assert drain.seconds(4000) == pytest.approx(4.0)

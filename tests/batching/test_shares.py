"""Whose turn it is among models, and what waits of whom."""

from collections import Counter

import pytest

from sie_core.batching.fair_queue import AGE_S
from sie_core.batching.sharing.shares import Claims, DeviceShares, Drain
from sie_core.contracts import QueuedUnit, Unit


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


def test_a_model_that_few_ask_for_is_served_within_the_ageing_bound():
    now, last, longest = 0.0, 0.0, 0.0
    for model in served({"few": 1.0, "many": 500.0}, 400):
        now += 0.1
        if model == "few":
            last, longest = now, max(longest, now - last)
    assert longest <= AGE_S + 0.3


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

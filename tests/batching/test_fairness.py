"""Shares, waits and counts of the batch former, in virtual time."""

from collections import Counter, defaultdict
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sie_core.batching import BatchFormer
from sie_core.contracts import BatchLimits, QueuedUnit, Unit
from sie_core.contracts.device.batching import AGE_S

BATCH = 100
WINDOW = 20
COSTS = st.integers(1, BATCH // 8)
# Shrinking, let alone explaining, an example that fails takes minutes here.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
WEIGHTS = st.sampled_from([0.25, 1.0, 4.0])


def former(max_requests=64, max_run_s=None):
    return BatchFormer(BatchLimits(BATCH, max_requests, max_run_s, 0.01))


def units(request, *costs, key="k", at=0.0, client=None, weight=1.0):
    return [QueuedUnit(Unit(0, cost, key, None), request, at, None, client, weight) for cost in costs]


def names(batch):
    return Counter(unit.request for unit in batch.units)


def test_a_short_request_beside_a_large_one_runs_in_the_next_batch():
    batches = former()
    batches.add(units("bulk", *[10] * 500))
    batches.take(0.0, False)
    batches.add(units("short", 3))
    assert names(batches.take(0.0, False)) == {"short": 1, "bulk": 9}
    batches.add(units("other key", 3, key="l"))
    assert names(batches.take(0.0, False)) == {"other key": 1}


def test_requests_of_one_size_that_fit_into_a_turn_run_whole_in_the_order_they_came():
    batches = former()
    for name in "abcdefg":
        batches.add(units(name, *[10] * 2))
    assert list(names(batches.take(0.0, False)).items()) == [(name, 2) for name in "abcde"]
    assert list(names(batches.take(0.0, False)).items()) == [(name, 2) for name in "fg"]


def test_the_requests_of_one_client_share_its_weight():
    batches = former()
    for number in range(8):
        batches.add(units(("many", number), *[10] * 200, client="many"))
    batches.add(units("one", *[10] * 200, client="one"))
    served = sum((names(batches.take(0.0, False)) for _ in range(WINDOW)), Counter())
    assert served["one"] == pytest.approx(100, abs=10)


def test_who_leaves_takes_its_claim_along():
    batches = former()
    batches.add(units("a", *[10] * 100, client="c"))
    batches.add(units("b", *[10] * 100))
    batches.cancel("a")
    batches.add(units("again", 10, client="c"))
    assert "again" in names(batches.take(0.0, False))


def test_many_requests_of_one_client_that_wait_for_long_lead_no_batches_before_another_client():
    batches = former()
    for number in range(60):
        batches.add(units(number, 10, client="flood", key=number))
    for number in range(20):
        batches.take(float(number), False)
    batches.add(units("other", 10, client="other", key="other", at=20.0))
    following = [names(batches.take(20.0 + number, False)) for number in range(3)]
    assert {"other"} in map(set, following)


@pytest.mark.parametrize("key", ["k", "of its own"])
def test_a_request_of_large_weight_waits_for_no_backlog_of_small_weight_however_old_it_is(key):
    batches = former()
    for number in range(60):
        batches.add(units(number, BATCH, weight=0.25))
    for number in range(20):
        batches.take(float(number), False)
    batches.add(units("interactive", BATCH, weight=4.0, key=key, at=20.0))
    following = [names(batches.take(20.0 + number, False)) for number in range(2)]
    assert {"interactive"} in map(set, following)


def flows_of(keys):
    return st.lists(
        st.tuples(WEIGHTS, st.lists(COSTS, min_size=1, max_size=5), st.sampled_from(keys)), min_size=2, max_size=8
    )


def off_their_shares(flows, rounds, window, hold_s=None):
    """Return what flows were off their shares at most, in cost, over any `window` batches of so many.

    Some of them are to hold the device for `hold_s` only.
    """
    batches = former()
    for number, (weight, costs, key) in enumerate(flows):
        batches.add(units(number, *costs * (rounds * BATCH // sum(costs) + 1), key=key, weight=weight))
    runs = []
    for number in range(rounds):
        served = Counter()
        batch = batches.take(0.0, False, hold_s=hold_s if number % 8 < 4 else None)
        for unit in batch.units:
            served[unit.request] += unit.unit.cost
        batches.record(batch, 0.001 + 0.001 * batch.cost)
        runs.append(served)
    total = sum(weight for weight, _, _ in flows)
    worst = 0.0
    for start in range(rounds - window + 1):
        found = sum(runs[start : start + window], Counter())
        cost = sum(found.values())
        off = max(abs(found[number] - cost * weight / total) for number, (weight, _, _) in enumerate(flows))
        worst = max(worst, off)
    return worst


@given(flows=flows_of("k"), hold_s=st.sampled_from([None, 0.01, 0.05]))
@settings(max_examples=40, deadline=None, phases=PHASES)
def test_shares_over_any_twenty_batches_are_as_the_weights(flows, hold_s):
    assert off_their_shares(flows, 2 * WINDOW, WINDOW, hold_s) <= 0.05 * WINDOW * BATCH


@given(flows=flows_of("klmnopqr"), window=st.sampled_from([WINDOW, 2 * WINDOW]))
@settings(max_examples=40, deadline=None, phases=PHASES)
def test_where_keys_differ_whole_batches_take_turns_and_nobody_is_three_off_its_share(flows, window):
    assert off_their_shares(flows, 3 * WINDOW, window) <= 3 * BATCH


@given(
    seed=st.integers(0, 1000),
    steps=st.integers(7, 64),
    flood=st.integers(1, 12),
    hold_s=st.none() | st.floats(0.001, 2),
)
@settings(max_examples=40, deadline=None, phases=PHASES)
def test_nobody_waits_beyond_the_ageing_bound(seed, steps, flood, hold_s):
    draw, batches, now = Random(seed), former(max_requests=4), 0.0
    seconds = steps / 64  # of a batch: times add up exactly
    batches.add(units("patient", *[BATCH] * 20, weight=0.25, key="rare"))
    queued, waits = Counter(patient=20), {"patient": (0.0, 0)}
    for batch_number in range(80):
        for number in range(draw.randint(0, flood)):  # often more than a batch takes
            costs = draw.choices(range(1, BATCH // 8), k=draw.randint(1, 3))
            who = draw.choice([(batch_number, number), "known client", "other client"])
            client = who if isinstance(who, str) else None
            batches.add(units((batch_number, number), *costs, at=now, weight=4.0, client=client))
            queued[who] += len(costs)
            waits.setdefault(who, (now, len(waits)))
        batch = batches.take(now, False, hold_s=hold_s)
        if batch is not None:
            batches.record(batch, seconds * batch.cost / BATCH)
        served = Counter(unit.client or unit.request for unit in (batch.units if batch else ()))
        queued -= served
        for who in served:
            since, others = waits.pop(who)
            assert now - since < AGE_S + seconds * (1 + 2 * others)
        again = [who for who in served if who in queued]
        waits |= dict.fromkeys(again, (now, len(waits) + len(again) - 1))
        now += seconds


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.lists(st.integers(1, 150), max_size=5), st.sampled_from("acxt")), max_size=60
    )
)
@settings(deadline=None)
def test_cancels_and_expiries_at_any_moment_leave_nothing_counted(steps):
    batches, now, open_ = former(), 0.0, defaultdict(int)
    for request, costs, step in steps:
        now += 0.1
        if step == "a" and costs:
            batches.add([QueuedUnit(Unit(0, cost, "k", None), request, now, now + 0.3, request % 2) for cost in costs])
            open_[request] += sum(costs)
        elif step == "c":
            batches.cancel(request)
            open_.pop(request, None)
        elif step == "x":
            for late in batches.expire(now):
                open_.pop(late)
        elif (batch := batches.take(now, False)) is not None:
            for unit in batch.units:
                open_[unit.request] -= unit.unit.cost
        assert batches.queued_cost == sum(open_.values())
    for request in range(6):
        batches.cancel(request)
    queue = batches._queue
    assert (batches.queued_cost, batches.queued_units, batches.oldest()) == (0, 0, None)
    left = [
        queue.flows,
        queue.lanes,
        queue._clients,
        queue._unserved,
        queue._turns._begun,
        queue._turns._later,
        batches._deadlines,
    ]
    assert not any(left)

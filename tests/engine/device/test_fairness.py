"""Who waits for whom, in virtual time: clients, models, long and short requests beside one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sie_core.batching.scheduler import SHARED_S
from tests.engine.device_time import OVERHEAD_S, PRICE_S, Asked, DeviceTime, Model

SECONDS, BEGIN = 12.0, 2.0
LAYERS = 6
"""Of a forward pass on a CPU; an accelerator runs a batch to its end."""


def again(
    device: DeviceTime,
    model: Model,
    costs: list[int],
    *,
    client: Callable[[int], str | None],
    requests: int = 1,
    begin: float = 0.0,
    pause_s: float = 0.002,
) -> list[Asked]:
    """Have so many requests asked at once, each again when it was answered; return those that were answered."""
    answered: list[Asked] = []
    asked: dict[int, Asked | None] = dict.fromkeys(range(requests))

    def look() -> None:
        for number, each in asked.items():
            if each is None or each.settled:
                if each is not None:
                    answered.append(each)
                asked[number] = device.ask(model, costs, client=client(number))
        if device.now < SECONDS:
            device.at(device.now + pause_s, look)

    device.at(begin, look)
    return answered


def seconds(costs: list[int]) -> float:
    return OVERHEAD_S + PRICE_S * sum(costs)


def waits(answered: list[Asked], part: float) -> float:
    """Return how long the given part of the requests took at most, less the first two."""
    took = sorted(each.ended - each.arrived for each in answered[2:] if each.ended is not None)
    assert len(took) > 20
    return took[int(part * len(took))]


def test_one_request_at_a_time_beside_200_connections_of_one_other_client() -> None:
    device, costs = DeviceTime(10**8), [200] * 4
    model = device.add(Model())
    again(device, model, costs, client=lambda _: "greedy", requests=200)
    modest = again(device, model, costs, client=lambda _: "modest", begin=BEGIN)
    device.run(SECONDS)
    assert waits(modest, 0.5) <= 3.1 * seconds(costs)


@pytest.mark.parametrize(("client", "requests"), [("other", 1), ("other", 8), ("same", 1)])
@pytest.mark.parametrize("layers", [1, LAYERS])
def test_a_short_request_beside_requests_of_512_long_texts(client: str, requests: int, layers: int) -> None:
    device, costs = DeviceTime(10**8, layers=layers), [20]
    model = device.add(Model())
    again(device, model, [256] * 512, client=lambda number: f"long {number}", requests=requests)
    who = "long 0" if client == "same" else "short"
    short = again(device, model, costs, client=lambda _: who, begin=BEGIN, pause_s=0.02)
    device.run(SECONDS)
    if layers == 1:  # it waits for the end of a batch
        assert waits(short, 0.99) <= SHARED_S + 2 * seconds(costs)
    else:
        assert waits(short, 0.5) <= 3.1 * seconds(costs)
        assert waits(short, 0.99) <= 8 * seconds(costs)


@pytest.mark.parametrize("run_s", [0.002, 0.03])
def test_a_request_beside_256_clients_of_another_model(run_s: float) -> None:
    device = DeviceTime(10**8)
    flooded, quiet = device.add(Model("flooded")), device.add(Model("quiet"))
    quiet.pace = lambda: run_s / seconds([5])
    again(device, flooded, [400], client=str, requests=256)
    asked = again(device, quiet, [5], client=lambda _: "one", begin=BEGIN, pause_s=0.02)
    device.run(SECONDS)
    assert waits(asked, 0.95) <= 3 * max(SHARED_S, run_s)
    flood = sum(run.batch.cost for run in device.batches if run.model is flooded and run.started > BEGIN)
    assert flood * PRICE_S >= 0.5 * (SECONDS - BEGIN)


def test_a_lone_request_runs_in_batches_as_long_as_the_settings_allow() -> None:
    device = DeviceTime(10**8)
    model = device.add(Model(run_s=0.25))
    for costs in ([10], [1000], [256] * 2000):
        device.ask(model, costs)
        device.run_all()
    assert max(run.ended - run.started for run in device.batches) > 0.2


def test_where_every_batch_takes_long_whatever_it_holds_it_may_hold_more() -> None:
    device = DeviceTime(10**8)
    model = device.add(Model(run_s=None))
    model.pace = lambda: 15.0  # 30 ms each, and 0.75 ms a unit
    asked = again(device, model, [10], client=str, requests=100)
    device.run(SECONDS)
    assert len(asked) > 200
    longest = max(run.ended - run.started for run in device.batches)
    assert SHARED_S < longest <= 8 * 15 * OVERHEAD_S


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_models_share_the_device_by_their_weights_whoever_asks_them(weight: float) -> None:
    device = DeviceTime(10**8)
    first, second = device.add(Model("test/first", weight=weight)), device.add(Model("test/second"))
    again(device, first, [250] * 8, client=str, requests=2)
    again(device, second, [250], client=str, requests=60)
    device.run(SECONDS)
    took = Counter[str]()
    for run in device.batches[:-1]:
        took[run.model.id] += run.ended - run.started
    assert took["test/first"] == pytest.approx(weight * took["test/second"], rel=0.25)


def test_a_model_that_was_idle_is_not_compensated_for_it() -> None:
    device = DeviceTime(10**8)
    busy, new = device.add(Model("test/busy")), device.add(Model("test/new"))
    again(device, busy, [250] * 8, client=str, requests=20)
    again(device, new, [250] * 8, client=str, requests=20, begin=6.0)
    device.run(SECONDS)
    after = [run.model.id for run in device.batches if 6.5 < run.started < 8.0]
    assert 0.4 < after.count("test/busy") / len(after) < 0.6


def test_clients_that_are_both_flooding_take_turns_and_do_not_preempt_one_another() -> None:
    device = DeviceTime(10**8, layers=12)
    models = [device.add(Model(name)) for name in ("first", "second")]
    for model in models:
        again(device, model, [100], client=str, requests=64)
    device.run(4.0)
    assert not any(run.within for run in device.batches)
    assert not any(run.batch.preemptible for run in device.batches)


def test_what_preempts_a_run_takes_a_quarter_of_its_time_at_most() -> None:
    device = DeviceTime(10**8, layers=50)
    model = device.add(Model())
    again(device, model, [256] * 512, client=lambda _: "long")
    short = again(device, model, [20], client=str, requests=40, pause_s=0.001)
    device.run(SECONDS)
    long = [run for run in device.batches[:-1] if run.batch.preemptible]
    # `started` is moved by what preempted a run.
    stood_still_s = sum(run.started - began for run, began in zip(device.batches, device.began, strict=False))
    assert 0.05 < stood_still_s / sum(run.ended - run.started for run in long) < 0.35
    assert len(short) > 1000


def bound_s(cost: int, clients: int, models: int, unit: int) -> float:
    """Return how long a request takes at most whose client asks nothing else, as `docs/operate/fairness.md` says.

    Until it ends each other client is given as much as it costs, and a request more that had begun. Each other model
    that waits runs as long meanwhile. Before and after are a batch each.
    """
    most_s = OVERHEAD_S + PRICE_S  # of a cost unit, where each is a batch of its own
    batch_s = max(SHARED_S, 6 * OVERHEAD_S, OVERHEAD_S + PRICE_S * unit)
    return models * ((clients + 1) * (cost + unit) * most_s + batch_s) + 2 * batch_s


OTHERS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 30), st.floats(0.0, 0.2), st.integers(0, 1)),
    max_size=40,
)
"""Of each other request: its client, units, their cost, when it comes and to which model."""


@settings(deadline=None, max_examples=60)
@given(others=OTHERS, mine=st.tuples(st.integers(1, 20), st.integers(1, 30)), at=st.floats(0.0, 0.2))
def test_nobody_waits_for_longer_than_what_each_other_client_is_given_meanwhile(
    others: list[tuple[int, int, int, float, int]], mine: tuple[int, int], at: float
) -> None:
    device = DeviceTime(10**9)
    models = [device.add(Model(f"test/{number}")) for number in range(2)]
    asked: list[Any] = []
    for client, units, cost, moment, model in others:
        device.at(moment, lambda c=client, u=units, k=cost, m=model: device.ask(models[m], [k] * u, client=str(c)))

    def ask() -> None:
        asked.append(device.ask(models[0], [mine[1]] * mine[0], client="me"))

    device.at(at, ask)
    device.run(600.0)
    most = max((units * cost for _, units, cost, _, _ in others), default=0)
    assert asked[0].ended is not None
    assert asked[0].ended - asked[0].arrived <= bound_s(mine[0] * mine[1] + most, 4, 2, 30)

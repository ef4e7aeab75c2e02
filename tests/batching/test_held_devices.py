"""Short requests beside a flood of another model, on a device that runs each batch to its end, in virtual time."""

from statistics import quantiles

import pytest

from sie_core.batching.cost_model import FixedTime
from sie_core.batching.sharing.scheduler import HELD_TO_END_S
from tests.engine.device_time import OVERHEAD_S, PRICE_S, DeviceTime, Model

FULL_S = OVERHEAD_S + PRICE_S * 16_384
SECONDS = 20.0


def flooded(*, runs_to_end, shorts_every_s=None, costs=(100,) * 8, client="flood"):
    """Flood a model, from a time on beside short requests of another; return the device, and those short ones."""
    device = DeviceTime(runs_to_end=runs_to_end)
    model, quiet, asked = device.add(Model("flooded", run_s=None)), device.add(Model("quiet")), []
    for number in range(int(SECONDS / 0.05)):
        device.at(
            number * 0.05, lambda: [device.ask(model, list(costs), client=client) for _ in range(2400 // sum(costs))]
        )
    for number in range(int(SECONDS / shorts_every_s) if shorts_every_s else 0):
        device.at(5 + number * shorts_every_s, lambda: asked.append(device.ask(quiet, [5])))
    device.run(SECONDS)
    return device, asked


def pace(device):
    """Cost units a second of the flood, of the time in which short requests came."""
    mine = [run for run in device.batches if run.model.id == "flooded" and run.started > 6]
    return sum(run.batch.cost for run in mine) / (SECONDS - 6)


@pytest.mark.parametrize(("costs", "client"), [((100,) * 8, "flood"), ((400,), "flood"), ((100,) * 8, None)])
def test_short_requests_wait_for_a_small_batch_of_the_flood_which_keeps_four_fifths_of_its_pace(costs, client):
    alone, _ = flooded(runs_to_end=True, costs=costs, client=client)
    beside, asked = flooded(runs_to_end=True, shorts_every_s=0.0317, costs=costs, client=client)
    took = [each.ended - each.arrived for each in asked if each.ended is not None and each.arrived > 6]
    assert len(took) > 400
    most_s = max(6 * OVERHEAD_S, OVERHEAD_S + PRICE_S * costs[0]) + 2 * OVERHEAD_S
    assert quantiles(took, n=20)[-1] < most_s < FULL_S / 30
    short_s = [run.ended - run.started for run in beside.batches if run.model.id == "quiet" and run.ended > 6]
    left = 1 - sum(short_s) / (SECONDS - 6)
    assert pace(beside) >= 0.8 * left * pace(alone)


def test_a_flood_of_texts_as_long_as_those_that_came_one_by_one_before_keeps_its_pace():
    def flood(*, before):
        device = DeviceTime(runs_to_end=True)
        model, quiet = device.add(Model("flooded", run_s=None, price_s=2e-6)), device.add(Model("quiet"))
        for number in range(before):
            device.at(number * 0.05, lambda: device.ask(model, [100]))
        for number in range(int(20 / 0.0317)):
            device.at(number * 0.0317, lambda: device.ask(quiet, [5]))
        for number in range(200):
            device.at(10 + number * 0.05, lambda: [device.ask(model, [100], client="flood") for _ in range(200)])
        device.run(20.0)
        return sum(run.batch.cost for run in device.batches if run.model is model and run.started > 12)

    assert flood(before=200) >= 0.95 * flood(before=0)


def test_batches_are_as_large_as_ever_while_nobody_else_comes_and_where_something_lets_short_ones_by():
    sizes = [
        [run.batch.cost for run in device.batches]
        for device in (flooded(runs_to_end=True)[0], flooded(runs_to_end=False)[0])
    ]
    assert sizes[0] == sizes[1]
    assert max(sizes[0]) > 16_000
    preempted, _ = flooded(runs_to_end=False, shorts_every_s=0.0317, costs=(400,))
    assert max(run.batch.cost for run in preempted.batches if run.started > 6) >= 16_000


def test_batches_are_large_again_once_short_requests_come_no_more():
    device, _ = flooded(runs_to_end=True, shorts_every_s=SECONDS)
    assert max(run.batch.cost for run in device.batches if run.started > 10) > 16_000


def test_two_floods_are_in_nobody_s_way_and_keep_their_batches():
    device = DeviceTime(runs_to_end=True)
    models = [device.add(Model(name, run_s=None)) for name in "ab"]
    for number in range(500):
        for model in models:
            device.at(number * 0.01, lambda model=model: [device.ask(model, [100]) for _ in range(3)])
    device.run(5.0)
    for model in models:
        costs = [run.batch.cost for run in device.batches if run.model is model and run.started > 2]
        assert min(costs) == 6_400  # 64 requests


def test_nothing_is_launched_behind_a_batch_that_short_requests_of_others_wait_for():
    device = DeviceTime(runs_to_end=True, ahead=2)
    model, quiet = device.add(Model("flooded", run_s=None)), device.add(Model("quiet"))
    for costs in ([10], [4000], [10], [4000]):
        device.ask(model, costs)
        device.run_all()
    device.ask(quiet, [5])
    device.run_all()
    device.ask(quiet, [5])
    device.run_all()
    for _ in range(40):
        device.ask(model, [100])
    long, _ = device.queue.take()
    assert long.model is model
    assert HELD_TO_END_S < long.batch.predicted_s < 10 * OVERHEAD_S
    device.now += 0.011  # a busy device is not waited for any longer
    assert device.queue.take()[0] is None
    device.queue.device_done(long)
    assert device.queue.take()[0] is not None


@pytest.mark.parametrize("fixed_s", [0.0, 0.003, 0.05])
def test_the_time_of_every_batch_is_known_from_two_sizes_whatever_came_since(fixed_s):
    fixed = FixedTime()
    fixed.record(10, 9.0)  # the first run of a process is slow
    fixed.record(12, fixed_s + 0.012)
    for _ in range(100):
        fixed.record(16_000, fixed_s + 16.0)
    assert fixed.seconds() == pytest.approx(fixed_s, abs=1e-6)


def test_what_was_long_ago_tells_nothing_of_it():
    fixed = FixedTime()
    assert (fixed.seconds(), fixed.smallest()) == (None, 0)
    fixed.record(10, 0.1)
    for _ in range(200):
        fixed.record(16_000, 1.6)
    assert (fixed.seconds(), fixed.smallest()) == (None, 16_000)

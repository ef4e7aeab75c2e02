"""A model that one client asks is not starved by another that hundreds ask at once, in virtual time."""

from collections import Counter
from statistics import quantiles

import pytest

from sie_core.batching.sharing.admission import LITTLE_S
from sie_core.batching.sharing.lending import LENT
from tests.engine.device_time import OVERHEAD_S, PRICE_S, DeviceTime, Model

SECONDS, BEGIN_S = 20.0, 5.0
FULL_S = OVERHEAD_S + PRICE_S * 16_000
HUNDREDS = 256
# While short requests come, a batch of others takes six times the overhead.
SHORT_S = 20 * OVERHEAD_S


def again_and_again(device, model, costs, *, clients, begin=0.0, pause_s=0.0, weight=1.0, timeout_s=None):
    """Have clients ask, each again after its answer; return what was answered."""
    answered, waiting = [], dict.fromkeys(range(clients))

    def look():
        for client, asked in waiting.items():
            if asked is None or (asked.settled and device.now >= (asked.ended or 0) + pause_s):
                answered.extend([] if asked is None else [asked])
                waiting[client] = device.ask(model, costs, weight=weight, timeout_s=timeout_s)
        if device.now < SECONDS:
            device.at(device.now + 0.002, look)

    device.at(begin, look)
    return answered


def beside_hundreds(run_s, *, models=1, weight=1.0, price_s=PRICE_S, **device):
    """Ask models whose batches take `run_s`, beside hundreds who ask another; return the device and their answers."""
    device = DeviceTime(**device)
    flooded = device.add(Model("flooded", run_s=None, price_s=price_s))
    again_and_again(device, flooded, [400], clients=HUNDREDS)
    quiet = [device.add(Model(f"quiet {number}", run_s=None)) for number in range(models)]
    for model in quiet:
        model.pace = lambda: run_s / (OVERHEAD_S + PRICE_S * 5)
    answered = [
        again_and_again(device, model, [5], clients=1, begin=BEGIN_S, pause_s=0.02, weight=weight) for model in quiet
    ]
    device.run(SECONDS)
    return device, [asked for each in answered for asked in each]


def slowest_s(answered):
    """95 of a hundred take no longer; the first, which meets a batch of before, is left out."""
    return quantiles([asked.ended - asked.arrived for asked in answered[1:]], n=20)[-1]


def device_s(device):
    """Seconds of the device by model, of the time in which all were asked."""
    had = Counter()
    for run in device.batches:
        if run.started > BEGIN_S + 1 and run.ended:
            had[run.model.id] += run.ended - run.started
    return had


@pytest.mark.parametrize("runs_to_end", [True, False])
@pytest.mark.parametrize("run_s", [0.002, 0.03, 0.06])
def test_it_waits_for_the_batch_that_runs_and_no_other(run_s, runs_to_end):
    _, answered = beside_hundreds(run_s, runs_to_end=runs_to_end)
    assert slowest_s(answered) < FULL_S + run_s + 0.01


@pytest.mark.parametrize("runs_to_end", [True, False])
def test_several_such_models_together_have_a_quarter_of_the_time_of_the_other(runs_to_end):
    device, answered = beside_hundreds(0.09, models=5, price_s=PRICE_S / 5, runs_to_end=runs_to_end)
    had = device_s(device)
    assert sum(had.values()) / had["flooded"] - 1 == pytest.approx(LENT, abs=0.05)
    assert len({asked.model.id for asked in answered}) == 5


@pytest.mark.parametrize("run_s", [1.1 * LITTLE_S, 2 * LITTLE_S, 4 * LITTLE_S])
def test_where_more_waits_it_goes_first_once_that_would_have_run_in_a_quarter_of_the_time(run_s):
    device, answered = beside_hundreds(run_s, runs_to_end=True)
    assert run_s / LENT < slowest_s(answered) < run_s / LENT + 2 * FULL_S
    assert device_s(device)["quiet 0"] < 0.25 * (SECONDS - BEGIN_S)


def test_what_is_sent_as_bulk_goes_before_nobody():
    _, answered = beside_hundreds(0.06, weight=0.25, runs_to_end=True)
    assert slowest_s(answered) > 2 * FULL_S


def test_a_short_request_that_waited_for_a_point_of_preemption_stays_short():
    layers = 12
    _, answered = beside_hundreds(0.002, layers=layers)
    assert slowest_s(answered) < 1.5 * FULL_S / layers


def with_a_deadline(run_s, timeout_s):
    """Ask a model again and again with a deadline, beside three times as much of another one as the device can do."""
    device = DeviceTime(runs_to_end=True)
    flooded, quiet = device.add(Model("flooded")), device.add(Model("quiet"))
    quiet.pace = lambda: run_s / (OVERHEAD_S + PRICE_S * 5)
    every_s = PRICE_S * 400 / 3
    for number in range(int(SECONDS / every_s)):
        device.at(number * every_s, lambda: device.ask(flooded, [100] * 4, timeout_s=10.0))
    asked = []

    def look():
        if all(each.settled for each in asked):
            asked.append(device.ask(quiet, [5], timeout_s=timeout_s))
        device.at(device.now + 0.05, look)

    device.at(BEGIN_S, look)
    device.run(SECONDS)
    return [each for each in asked if each.settled]


@pytest.mark.parametrize("run_s", [0.002, 0.03])
def test_its_deadline_is_met_although_the_other_model_is_overloaded(run_s):
    asked = with_a_deadline(run_s, 1.0)
    assert len(asked) > 50
    assert not [each.error for each in asked if each.error]


def test_its_deadline_is_met_where_more_waits_than_little_and_a_quarter_of_the_time_is_enough():
    codes = Counter(each.error and each.error.code for each in with_a_deadline(2 * LITTLE_S, 3.0))
    assert codes[None] > 5
    assert not codes["DEADLINE_EXCEEDED"]
    assert codes["QUEUE_FULL"] <= 0.1 * codes.total()


def test_it_is_refused_rather_than_late_where_a_quarter_of_the_device_is_too_little():
    codes = Counter(each.error and each.error.code for each in with_a_deadline(0.06, 0.3))
    assert codes["QUEUE_FULL"] > 10
    assert codes[None] > 10
    assert codes["DEADLINE_EXCEEDED"] <= 0.02 * codes.total()  # the next batch of the flood may be longer than its last


def beside_a_flood_of(weight, *, own=(1.0,), timeout_s=None):
    """Ask a model with weights `own`, beside hundreds who ask another; return the answers to the first."""
    device = DeviceTime(runs_to_end=True)
    again_and_again(device, device.add(Model("flooded", run_s=None)), [400], clients=HUNDREDS, weight=weight)
    quiet = device.add(Model("quiet", run_s=None))
    quiet.pace = lambda: 0.002 / (OVERHEAD_S + PRICE_S * 5)
    answered = [
        again_and_again(device, quiet, [5], clients=1, begin=BEGIN_S, pause_s=0.02, weight=each, timeout_s=timeout_s)
        for each in own
    ]
    device.run(SECONDS)
    return answered[0]


@pytest.mark.parametrize("timeout_s", [None, 1.0])
def test_others_who_ask_the_same_model_as_bulk_hold_up_nobody(timeout_s):
    answered = beside_a_flood_of(1.0, own=(1.0, 0.25, 0.25), timeout_s=timeout_s)
    assert not [each.error for each in answered if each.error]
    assert slowest_s(answered) < SHORT_S


@pytest.mark.parametrize("timeout_s", [None, 1.0])
def test_hundreds_of_a_higher_priority_hold_up_nobody_for_seconds(timeout_s):
    answered = beside_a_flood_of(4.0, timeout_s=timeout_s)
    assert not [each.error for each in answered if each.error]
    assert slowest_s(answered) < SHORT_S


def test_one_of_longer_requests_takes_no_turn_of_short_ones_on_an_accelerator():
    device = DeviceTime(runs_to_end=True)
    again_and_again(device, device.add(Model("flooded", run_s=None)), [400], clients=HUNDREDS)
    answered = []
    for name, run_s in (("short", 0.002), ("longer", 0.03)):
        model = device.add(Model(name, run_s=None))
        model.pace = lambda run_s=run_s: run_s / (OVERHEAD_S + PRICE_S * 5)
        answered.append(again_and_again(device, model, [5], clients=1, begin=BEGIN_S, pause_s=0.02))
    device.run(SECONDS)
    assert slowest_s(answered[0]) < SHORT_S
    assert slowest_s(answered[1]) < 0.5


def test_what_preempted_others_for_long_owes_them_no_more_than_a_batch():
    device = DeviceTime(layers=12)
    again_and_again(device, device.add(Model("flooded", run_s=0.03)), [400], clients=HUNDREDS)
    for number in range(3):
        model = device.add(Model(f"preempting {number}"))
        model.pace = lambda: 0.015 / (OVERHEAD_S + PRICE_S * 5)
        again_and_again(device, model, [5], clients=1, begin=1.0, pause_s=0.005)
    quiet = device.add(Model("quiet"))
    quiet.pace = lambda: 0.03 / (OVERHEAD_S + PRICE_S * 5)
    answered = again_and_again(device, quiet, [5], clients=1, begin=SECONDS / 2, pause_s=0.02)
    device.run(SECONDS)
    assert slowest_s(answered) < 1.0


@pytest.mark.parametrize("before_s", [0.0, 10.0])
def test_the_time_in_which_a_model_goes_first_is_not_charged_to_its_share(before_s):
    device = DeviceTime(runs_to_end=True)
    flooded, quiet = device.add(Model("flooded")), device.add(Model("quiet"))
    again_and_again(device, flooded, [400] * 10, clients=16)
    again_and_again(device, quiet, [5], clients=1, begin=SECONDS / 2 - before_s)
    again_and_again(device, quiet, [2400], clients=3, begin=SECONDS / 2)
    device.run(SECONDS)
    had = Counter()
    for run in device.batches:
        if run.started > SECONDS / 2 and run.ended:
            had[run.model.id] += run.ended - run.started
    assert had["quiet"] / sum(had.values()) == pytest.approx(4 / 20, abs=0.05)


def test_a_deadline_is_not_judged_by_time_that_its_own_model_lends():
    device = DeviceTime()
    again_and_again(device, device.add(Model("flooded", run_s=None)), [400], clients=64)
    quiet, asked = device.add(Model("quiet", run_s=None)), []
    quiet.pace = lambda: 0.02 / (OVERHEAD_S + PRICE_S * 5)
    for number in range(int((SECONDS - BEGIN_S) / 0.011)):
        device.at(BEGIN_S + number * 0.011, lambda: asked.append(device.ask(quiet, [5], timeout_s=0.35)))
    device.run(SECONDS)
    codes = Counter(each.error and each.error.code for each in asked if each.settled)
    assert codes[None] > 300
    assert codes["DEADLINE_EXCEEDED"] <= 0.03 * codes.total()


def test_a_lower_priority_has_its_part_beside_a_queue_that_fits_into_one_batch():
    device = DeviceTime()
    again_and_again(device, device.add(Model("flooded")), [400], clients=8, weight=4.0)
    for number in range(8):
        model = device.add(Model(f"quiet {number}"))
        model.pace = lambda: 0.015 / (OVERHEAD_S + PRICE_S * 5)
        again_and_again(device, model, [5], clients=1, begin=BEGIN_S)
    device.run(SECONDS)
    had = device_s(device)
    own = 8 / (4.0 * 8 + 8)
    assert 1 - had["flooded"] / sum(had.values()) == pytest.approx(own + LENT / 4, abs=0.06)

"""A deadline is judged by what requests of about that size took, not by what short ones did, in virtual time."""

from __future__ import annotations

import pytest

from tests.engine.device_time import Asked, DeviceTime, Model

PRICE_S = 2e-6
"""Of a cost unit; the overhead of a batch is that of a thousand."""
LONG = [256] * 256
LONG_S = PRICE_S * sum(LONG)


@pytest.fixture(params=[0.25, None], ids=["cpu", "gpu"])
def model(request: pytest.FixtureRequest) -> Model:
    return Model(run_s=request.param, price_s=PRICE_S)


def ask_shorts(time: DeviceTime, model: Model, *, until: float, clients: int = 8) -> list[Asked]:
    """Have clients send short texts, each again 10 ms after the last; return the requests."""
    asked: list[Asked] = []

    def again() -> None:
        asked.append(time.ask(model, [10]))
        if time.now < until:
            time.at(time.now + 0.01, again)

    for client in range(clients):
        time.at(0.001 * client, again)
    return asked


def ask_longs(time: DeviceTime, model: Model, at: float, count: int, timeout_s: float) -> list[Asked]:
    """Have clients send one long list each, a millisecond apart."""
    asked: list[Asked] = []
    for client in range(count):
        time.at(at + 0.001 * client, lambda: asked.append(time.ask(model, LONG, timeout_s)))
    return asked


def in_time(asked: list[Asked]) -> int:
    return sum(each.ended is not None and each.error is None for each in asked)


@pytest.mark.parametrize("shorts_end", [4.0, 20.0], ids=["after", "among"])
def test_long_requests_that_follow_short_ones_are_not_refused(model: Model, shorts_end: float) -> None:
    time = DeviceTime()
    time.add(model)
    ask_shorts(time, model, until=shorts_end)
    longs = ask_longs(time, model, 5.0, 8, timeout_s=4 * 8 * LONG_S)
    again = ask_longs(time, model, 15.0, 8, timeout_s=4 * 8 * LONG_S)
    time.run(60.0)
    assert (in_time(longs), in_time(again)) == (8, 8)


def test_once_they_are_measured_those_that_cannot_be_answered_in_time_are_refused(model: Model) -> None:
    time = DeviceTime()
    time.add(model)
    ask_shorts(time, model, until=4.0)
    ask_longs(time, model, 5.0, 2, timeout_s=60.0)
    longs = ask_longs(time, model, 10.0, 32, timeout_s=8 * LONG_S)
    time.run(60.0)
    refused = [each.error for each in longs if each.error is not None]
    assert {error.code for error in refused} == {"QUEUE_FULL"}
    assert 5 <= in_time(longs) <= 8
    assert in_time(longs) + len(refused) == len(longs)
    assert "e+" not in "".join(error.message for error in refused)


def test_a_longer_request_than_any_takes_as_many_times_as_long_where_those_filled_batches(model: Model) -> None:
    time = DeviceTime()
    time.add(model)
    ask_longs(time, model, 1.0, 2, timeout_s=60.0)
    longs = ask_longs(time, model, 10.0, 4, timeout_s=60.0)
    longest: list[Asked] = []
    time.at(10.1, lambda: longest.append(time.ask(model, LONG * 10, 5 * LONG_S)))
    time.run(60.0)
    assert in_time(longs) == 4
    assert longest[0].error is not None
    assert longest[0].error.code == "QUEUE_FULL"

"""Demand is told for a minute, and ends with the worker that comes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from sie_cluster.gateway.capacity.demand import MOST_REMEMBERED, Demand
from sie_cluster.gateway.capacity.lanes import Lane, Lanes
from sie_cluster.gateway.capacity.provisioning import Provisioning
from sie_cluster.messages.health import WorkerReport

from sie_core.contracts import InferenceError, LoadWait

LANE = Lane("_default", "default", "l4", "default")
OTHER = LANE._replace(profile="h100")


def test_demand_is_told_for_a_minute_after_each_request() -> None:
    now = [0.0]
    demand = Demand(lambda: now[0])
    demand.add(LANE)
    demand.add(LANE)
    now[0] = 45.0
    demand.add(LANE)
    demand.add(OTHER)
    assert dict(demand.pending()) == {LANE: 3, OTHER: 1}
    now[0] = 61.0
    assert dict(demand.pending()) == {LANE: 1, OTHER: 1}
    now[0] = 106.0
    assert dict(demand.pending()) == {}


def test_a_worker_that_comes_ends_the_demand_of_its_lane_alone() -> None:
    demand = Demand(lambda: 0.0)
    demand.add(LANE)
    demand.add(OTHER)
    demand.served(LANE)
    assert dict(demand.pending()) == {OTHER: 1}


def test_a_flood_is_counted_and_takes_no_more_memory() -> None:
    now = [0.0]
    demand = Demand(lambda: now[0])
    for number in range(10_000):
        now[0] = number / 1000
        demand.add(LANE)
    assert dict(demand.pending()) == {LANE: 10_000}
    assert len(demand._asked[LANE]) <= 11


async def test_ten_thousand_pools_that_come_and_go_leave_nothing_behind() -> None:
    now = [0.0]
    provisioning = Provisioning(lambda: -1e9)
    demand = provisioning.demand = Demand(lambda: now[0])
    for number in range(10_000):
        now[0] += 0.1
        lane = LANE._replace(resource_pool=f"invented-{number}")
        with suppress(InferenceError):
            await provisioning.wait(lane, LoadWait(1e-9), 60.0)
        if number % 2:
            demand.served(lane)
    assert provisioning.refused == {("l4", "default"): 10_000}
    assert len(demand._asked) <= MOST_REMEMBERED


def worker(name: str = "w1", *, up: bool = True, draining: bool = False) -> WorkerReport:
    return WorkerReport(name, "_default", "default", profile="l4", up=up, draining=draining)


def test_a_worker_serves_its_own_profile_and_any_and_no_other() -> None:
    lanes = Lanes()
    lanes.heard(worker())
    served = [profile for profile in ("l4", "any", "h100") if lanes.is_served(LANE._replace(profile=profile))]
    assert served == ["l4", "any"]
    assert lanes.profiles() == {"l4", "any"}
    assert not lanes.is_served(LANE._replace(bundle="gliner"))
    assert not lanes.is_served(LANE._replace(resource_pool="mine"))


def test_one_that_is_started_again_counts_and_one_that_drains_or_never_came_up_does_not() -> None:
    now, served = [0.0], list[Lane]()
    lanes = Lanes(served.append, lambda: now[0])
    lanes.heard(worker(up=False))
    assert not lanes.is_served(LANE)
    lanes.heard(worker())
    assert LANE in served
    for now[0] in (0.0, 5.0, 10.0):
        lanes.heard(worker(up=False))
    now[0] = 14.0
    assert lanes.is_served(LANE)
    now[0] = 16.0
    assert not lanes.is_served(LANE)
    lanes.heard(worker(draining=True))
    assert not lanes.is_served(LANE)


def test_one_that_is_not_heard_any_more_counts_as_long_as_its_heartbeats_may_have_been_held_up() -> None:
    """Three of its own heartbeats, and what a start takes."""
    for beat_s, until_s in ((5.0, 30.0), (60.0, 195.0)):
        now = [0.0]
        lanes = Lanes(clock=lambda now=now: now[0])
        lanes.heard(replace(worker(), beat_s=beat_s))
        now[0] = until_s - 1
        assert lanes.is_served(LANE)
        now[0] = until_s + 1
        assert not lanes.is_served(LANE)
    lanes.heard(worker())
    lanes.heard(worker(draining=True))
    assert not lanes.is_served(LANE)


def test_a_heartbeat_moves_its_worker_between_lanes_alone() -> None:
    lanes, other = Lanes(clock=lambda: 0.0), LANE._replace(profile="h100")
    for number in range(10):
        lanes.heard(worker(f"w{number}"))
    lanes.heard(replace(worker("w7"), profile="h100"))
    assert lanes.is_served(other)
    for number in range(10):
        lanes.heard(replace(worker(f"w{number}"), draining=number != 7, profile="l4" if number != 7 else "h100"))
    assert not lanes.is_served(LANE)
    lanes.heard(replace(worker("w7"), draining=True))
    assert not lanes.is_served(other)

"""A heartbeat costs a gateway the same beside a thousand workers as beside ten, and so does a request.

`python -m tests.bench.cluster.load.heartbeats` prints what a gateway's process takes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from sie_cluster.fleet.health.workers import Workers
from sie_cluster.gateway.capacity.lanes import Lane, Lanes
from sie_cluster.gateway.capacity.profiles import Profiles
from sie_cluster.messages.health import WorkerReport, encode_beat
from sie_cluster.queue.subjects import health_subject

from sie_core.contracts import Message


def beat(number: int) -> Message:
    report = WorkerReport(f"w{number}", "_default", "default", profile="l4", up=True)
    return Message(health_subject(report.worker), encode_beat(report))


def steps(run: Callable[[], object]) -> int:
    """Count the lines of Python that a call executes, comprehensions' rounds included."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("what", ["a heartbeat", "a request", "a request for a machine profile"])
def test_what_a_gateway_does_does_not_grow_with_its_workers(what: str) -> None:
    def cost(workers: int) -> int:
        now = [0.0]
        lanes = Lanes(clock=lambda: now[0])
        heard = Workers(lambda before, report: lanes.heard(report), lambda: now[0])
        for number in range(workers):
            heard.heard(beat(number))
        lanes.is_served(lane)
        profiles, again = Profiles((), lanes.profiles), beat(0)
        calls: dict[str, Callable[[], object]] = {
            "a heartbeat": lambda: heard.heard(again),
            "a request": lambda: lanes.is_served(lane),
            "a request for a machine profile": lambda: profiles.find("l4"),
        }
        return steps(calls[what])

    lane = Lane("_default", "default", "l4", "default")
    assert cost(1000) == cost(10)

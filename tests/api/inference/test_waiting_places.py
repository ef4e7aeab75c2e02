"""Requests that wait for a model to load take no place from those at work."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import httpx
import pytest

from sie_core.api import Gate
from sie_core.contracts import InferenceError, InferenceRequest

URL = "/v1/encode/org/model"
BODY = {"items": [{"text": "hello"}]}
BOUND_S = 10.0


class Loading:
    """What a backend does that loads the model `org/model` for requests that say so, until `ready`."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.waiting = self.refused = 0

    async def __call__(self, request: InferenceRequest) -> None:
        if request.items[0].text != "wait":
            return
        with request.load_wait.place() as may_wait:
            if not may_wait:
                self.refused += 1
                raise InferenceError("MODEL_LOADING", "It loads.")
            self.waiting += 1
            await asyncio.wait_for(self.ready.wait(), BOUND_S)


async def until(condition) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - the application sets no event
            await asyncio.sleep(0.001)


async def test_requests_that_wait_for_a_load_leave_the_places_of_those_at_work(client: httpx.AsyncClient, backend):
    backend.act = loading = Loading()
    body = {"items": [{"text": "wait"}]}
    waiting = [asyncio.create_task(client.post(URL, json=body)) for _ in range(2)]  # as many as may be in flight
    await until(lambda: loading.waiting == 2)
    assert (await client.post(URL, json=BODY)).status_code == 200
    third = await client.post(URL, json=body)
    assert (third.status_code, third.json()["error"]["code"]) == (503, "MODEL_LOADING")
    assert (await client.post(URL, json=BODY)).status_code == 200
    loading.ready.set()
    assert [(await each).status_code for each in waiting] == [200, 200]


async def test_a_load_that_hangs_leaves_places_for_those_who_wait_for_another_model(client: httpx.AsyncClient, backend):
    backend.act = loading = Loading()
    body = {"items": [{"text": "wait"}]}
    waiting = [asyncio.create_task(client.post(URL, json=body)) for _ in range(2)]
    await until(lambda: loading.waiting == 2)
    waiting.append(asyncio.create_task(client.post("/v1/encode/org/another", json=body)))
    await until(lambda: loading.waiting == 3)
    loading.ready.set()
    assert [(await each).status_code for each in waiting] == [200, 200, 200]


def test_however_many_loads_hang_the_next_model_finds_a_place_and_the_places_are_bounded():
    gate = Gate(64)
    with ExitStack() as stack:
        taken = [sum(stack.enter_context(gate.waiting(f"m{number}", 0)) for _ in range(200)) for number in range(8)]
    assert taken == [64, 32, 16, 8, 4, 2, 1, 0]
    with gate.waiting("m7", 0) as may_wait:
        assert may_wait  # all have left


def test_bodies_of_waiting_requests_leave_room_for_the_others():
    gate = Gate(10, most_bytes=160)
    for size in (40, 40, 20):
        gate.enter()
        gate.hold(size)
    with gate.waiting("a", 40) as first, gate.waiting("a", 40) as second, gate.waiting("b", 20) as other:
        assert (first, second, other) == (True, False, True)
        gate.enter()
        gate.hold(80)
        with pytest.raises(InferenceError, match="bytes of bodies"):
            gate.hold(2)
    assert gate.in_flight == 4


def test_who_has_waited_is_at_work_again_beyond_the_limit_and_new_requests_are_refused_meanwhile():
    gate = Gate(1)
    gate.enter()
    with gate.waiting("a", 0) as may_wait:
        assert may_wait
        gate.enter()
    with pytest.raises(InferenceError, match="in flight"):
        gate.enter()
    gate.leave()
    with pytest.raises(InferenceError, match="in flight"):
        gate.enter()
    gate.leave()
    gate.enter()

"""Requests that wait for a model to load take no more than half of the places."""

from __future__ import annotations

import asyncio

import httpx

from sie_core.contracts import InferenceError, InferenceRequest

URL = "/v1/encode/org/model"
BODY = {"items": [{"text": "hello"}]}
BOUND_S = 30.0


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


async def test_half_of_the_places_wait_for_a_load_that_hangs_and_others_are_served(client: httpx.AsyncClient, backend):
    backend.act = loading = Loading()
    body = {"items": [{"text": "wait"}]}
    waiting = asyncio.create_task(client.post(URL, json=body))  # two may be in flight
    await until(lambda: loading.waiting == 1)
    assert (await client.post(URL, json=BODY)).status_code == 200
    second = await client.post(URL, json=body)
    assert (second.status_code, second.json()["error"]["code"]) == (503, "MODEL_LOADING")
    assert (await client.post(URL, json=BODY)).status_code == 200
    loading.ready.set()
    assert (await waiting).status_code == 200

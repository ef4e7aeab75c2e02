"""A client that leaves, a deadline that passes and a server that stops each end the work behind a request."""

import asyncio
import time

import httpx
import pytest

from sie_core.api import Gate
from sie_core.api.inference.cancellation import answer
from sie_core.contracts import InferenceError, InferenceReply, InferenceRequest, Item

URL = "/v1/encode/org/model"
BODY = {"items": [{"text": "x"}]}
BOUND_S = 30


def request(deadline: float | None = None) -> InferenceRequest:
    return InferenceRequest("org/model", "encode", [Item(text="x")], request_id="r1", deadline=deadline)


async def ask(backend, gate: Gate, wanted: InferenceRequest, receive) -> InferenceReply:
    return await answer(backend.infer(wanted), gate, receive, wanted.deadline)


async def never(*_: object) -> None:
    await asyncio.Event().wait()


async def test_a_client_that_leaves_cancels_its_work(backend) -> None:
    backend.act = never

    async def receive():
        return {"type": "http.disconnect"}

    with pytest.raises(InferenceError) as raised:
        await ask(backend, Gate(1), request(), receive)
    assert raised.value.code == "CLIENT_CLOSED_REQUEST"
    await asyncio.wait_for(backend.cancelled.wait(), BOUND_S)


async def test_a_deadline_answers_504_and_cancels_the_work(client: httpx.AsyncClient, backend) -> None:
    backend.act = never
    reply = await client.post(URL, json=BODY, headers={"X-SIE-Timeout-Ms": "20"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "DEADLINE_EXCEEDED")
    await asyncio.wait_for(backend.cancelled.wait(), BOUND_S)


async def test_the_backend_learns_the_deadline(client: httpx.AsyncClient, backend) -> None:
    await client.post(URL, json=BODY, headers={"X-SIE-Timeout-Ms": "60000"})
    assert 0 < backend.requests[0].deadline - time.monotonic() <= 60


async def test_a_past_deadline_is_not_too_early_for_504(backend) -> None:
    backend.act = never
    with pytest.raises(InferenceError) as raised:
        await ask(backend, Gate(1), request(deadline=time.monotonic() - 1), never)
    assert raised.value.code == "DEADLINE_EXCEEDED"


async def test_cancelling_the_answer_cancels_the_work(backend) -> None:
    begun = asyncio.Event()

    async def begin(_: object) -> None:
        begun.set()
        await never()

    backend.act = begin
    answering = asyncio.create_task(ask(backend, Gate(1), request(), never))
    await asyncio.wait_for(begun.wait(), BOUND_S)
    answering.cancel()
    await asyncio.wait_for(backend.cancelled.wait(), BOUND_S)


async def test_too_many_requests_are_turned_away_and_then_taken_again(client, backend, gate) -> None:
    release, arrived = asyncio.Event(), asyncio.Semaphore(0)

    async def hold(_: object) -> None:
        arrived.release()
        await release.wait()

    backend.act = hold
    running = [asyncio.create_task(client.post(URL, json=BODY)) for _ in range(2)]
    async with asyncio.timeout(BOUND_S):
        await arrived.acquire()
        await arrived.acquire()
    refused = await client.post(URL, json=BODY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "QUEUE_FULL")
    assert refused.headers["retry-after"] == "1"
    assert (await client.get("/readyz")).status_code == 200
    release.set()
    assert [reply.status_code for reply in await asyncio.gather(*running)] == [200, 200]
    assert gate.in_flight == 0
    assert (await client.post(URL, json=BODY)).status_code == 200


async def test_a_closed_gate_is_not_ready_and_refuses_with_a_retry(client, backend, gate) -> None:
    gate.close()
    refused = await client.post(URL, json=BODY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "QUEUE_UNAVAILABLE")
    assert int(refused.headers["retry-after"]) > 0
    assert refused.headers["connection"] == "close"
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.text) == (503, "draining")
    assert (await client.get("/livez")).status_code == 200
    assert not backend.requests


async def test_abandoned_work_is_answered_with_a_retry(client, backend, gate) -> None:
    begun = asyncio.Event()

    async def begin(_: object) -> None:
        begun.set()
        await never()

    backend.act = begin
    running = asyncio.create_task(client.post(URL, json=BODY))
    await asyncio.wait_for(begun.wait(), BOUND_S)
    gate.close()
    assert not await gate.idle(0.01)
    assert gate.abandon() == 1
    reply = await asyncio.wait_for(running, BOUND_S)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "QUEUE_UNAVAILABLE")
    assert await gate.idle(BOUND_S)


async def test_the_first_of_several_reasons_is_the_answer_and_the_task_goes_on(backend, gate) -> None:
    backend.act = never

    async def receive():
        gate.abandon()
        return {"type": "http.disconnect"}

    with pytest.raises(InferenceError) as raised:
        await ask(backend, gate, request(deadline=time.monotonic() - 1), receive)
    assert raised.value.code == "QUEUE_UNAVAILABLE"
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(0)


async def test_a_task_cancelled_from_outside_stays_cancelled(backend, gate) -> None:
    begun = asyncio.Event()

    async def begin(_: object) -> None:
        begun.set()
        await never()

    backend.act = begin
    answering = asyncio.create_task(ask(backend, gate, request(), never))
    await asyncio.wait_for(begun.wait(), BOUND_S)
    answering.cancel()
    gate.abandon()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert gate.abandon() == 0


@pytest.mark.parametrize(
    ("computed", "precision", "runner"),
    [
        ((), None, None),
        (("float32",), "float32", None),
        (("bfloat16 padded (equal lengths)",), "bfloat16", "padded (equal lengths)"),
        (("bfloat16 cpu-kernels", "float32 cpu-kernels"), "bfloat16, float32", "cpu-kernels"),
        (("float32 l\N{LATIN SMALL LETTER A WITH DIAERESIS}ufer\n",), "float32", None),
    ],
)
async def test_a_reply_names_the_precision_and_the_runner_once_each(
    client: httpx.AsyncClient, backend, computed, precision, runner
) -> None:
    backend.computed = computed
    headers = (await client.post(URL, json=BODY)).headers
    assert (headers.get("X-SIE-Precision"), headers.get("X-SIE-Runner")) == (precision, runner)

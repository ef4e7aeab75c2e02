"""Large bodies are worked on beside the event loop: others are answered meanwhile."""

import asyncio
import contextlib
import gc
import threading
import weakref
from functools import partial

import httpx
import numpy as np
import orjson
import pytest
from sie_sdk import wire
from starlette.requests import Request

from sie_core.api import Gate, create_app
from sie_core.api.body import body as body_module
from sie_core.api.body.json_body import PART, SMALL, Entries, write_json
from sie_core.api.http.offload import LARGE, VERY_LARGE, BodyThreads
from sie_core.api.inference import handler
from sie_core.api.native import encode
from sie_core.api.openai import embeddings
from sie_core.api.request import CLIENT, HEADERS, RequestHeaders
from sie_core.settings import Settings

BOUND_S = 30
ENCODE, EMBEDDINGS = "/v1/encode/org/model", "/v1/embeddings"
MANY = LARGE // 50
"""Items whose bodies and replies are large."""


@pytest.fixture
async def client(backend):
    app = create_app(backend, Settings())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        yield client


def body(path, texts):
    return {"items": [{"text": text} for text in texts]} if path == ENCODE else {"model": "org/model", "input": texts}


@pytest.mark.parametrize(
    ("path", "module", "step"),
    [
        (ENCODE, handler, "decode_body"),
        (ENCODE, encode, "items_reply"),
        (EMBEDDINGS, handler, "decode_body"),
        (EMBEDDINGS, embeddings, "write_json"),
    ],
)
async def test_others_are_answered_while_a_large_body_is_worked_on(client, monkeypatch, path, module, step):
    begun, go_on = threading.Event(), threading.Event()
    work = getattr(module, step)

    def held(*arguments):
        begun.set()
        assert go_on.wait(BOUND_S), "nobody else was answered meanwhile"
        return work(*arguments)

    monkeypatch.setattr(module, step, held)
    texts = ["a text as long as it takes for the body to be large" + "." * 30] * min(MANY, 2048)
    large = asyncio.create_task(client.post(path, json=body(path, texts)))
    async with asyncio.timeout(BOUND_S):
        while not begun.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.002)
        assert (await client.get("/livez")).status_code == 200
        go_on.set()
        assert (await large).status_code == 200


def noting(work, seen):
    def noted(*arguments):
        seen.add(threading.get_ident())
        return work(*arguments)

    return noted


@pytest.mark.parametrize("path", [ENCODE, EMBEDDINGS])
async def test_a_small_body_never_leaves_the_loop(client, monkeypatch, path):
    seen = set()
    for module, step in ((handler, "decode_body"), (encode, "items_reply"), (embeddings, "write_json")):
        monkeypatch.setattr(module, step, noting(getattr(module, step), seen))
    assert (await client.post(path, json=body(path, ["a"]))).status_code == 200
    assert seen == {threading.get_ident()}


@pytest.mark.parametrize("form", ["application/json", "application/msgpack"])
@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_comes_in_parts_is_read_where_they_were_put(client, form, announced):
    texts = ["x" * 300_000, "é" * 600_000, "y"]
    sent = (orjson.dumps if form.endswith("json") else wire.pack)(body(ENCODE, texts))
    assert len(sent) > body_module.SMALL

    async def parts():
        for start in range(0, len(sent), 65_537):
            yield sent[start : start + 65_537]

    headers = {"Content-Type": form, "Accept": "application/msgpack"}
    if announced:
        headers["Content-Length"] = str(len(sent))
    expected = await client.post(ENCODE, json=body(ENCODE, texts), headers={"Accept": "application/msgpack"})
    reply = await client.post(ENCODE, content=parts(), headers=headers)
    assert (reply.status_code, reply.content) == (200, expected.content)


async def test_no_call_joins_the_parts_of_a_large_body(settings):
    sent = [b"[", b"1," * 2**20, b"1]"]
    received = iter([{"type": "http.request", "body": part, "more_body": part is not sent[-1]} for part in sent])

    async def receive():
        return next(received)

    request = Request(
        {"type": "http", "method": "POST", "headers": [], HEADERS: RequestHeaders([]), CLIENT: "me"}, receive
    )
    found = await body_module.read_body(request, 2**22, Gate(1), BodyThreads())
    assert isinstance(found, memoryview)
    assert found == b"".join(sent)


async def test_very_large_bodies_are_worked_on_one_by_one_and_smaller_ones_beside_them():
    threads, begun, go_on = BodyThreads(), [threading.Event() for _ in range(2)], threading.Event()

    def work(number):
        begun[number].set()
        assert go_on.wait(BOUND_S)

    async with asyncio.timeout(2 * BOUND_S):
        large = [asyncio.create_task(threads.run(VERY_LARGE, partial(work, number))) for number in range(2)]
        assert await asyncio.to_thread(begun[0].wait, BOUND_S)
        assert await threads.run(LARGE, lambda: begun[1].is_set()) is False
        go_on.set()
        await asyncio.gather(*large)


async def test_a_large_body_with_a_mistake_is_refused_like_a_small_one(client):
    reply = await client.post(ENCODE, json={"items": [*({"text": "x"} for _ in range(MANY * 5)), {"text": 5}]})
    assert len(reply.request.content) > LARGE
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, f"items[{MANY * 5}].text")


async def test_what_a_failed_body_held_is_let_go_at_once():
    """Not only when garbage is collected, which is rare: bodies are large."""

    class Held:
        pass

    held = Held()
    seen = weakref.ref(held)

    def fail(body):
        raise ValueError(f"{body!r} is wrong")

    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            await BodyThreads().run(LARGE, partial(fail, held))
        del held
        async with asyncio.timeout(BOUND_S):
            while seen() is not None:  # noqa: ASYNC110 - the thread lets go of its work as it goes idle
                await asyncio.sleep(0.002)
    finally:
        gc.enable()


async def test_a_large_reply_is_the_same_in_both_formats(client):
    texts = [f"{'x' * (number % 7)}" for number in range(MANY)]
    plain = await client.post(ENCODE, json=body(ENCODE, texts))
    packed = await client.post(ENCODE, json=body(ENCODE, texts), headers={"Accept": "application/msgpack"})
    assert min(len(plain.content), len(packed.content)) > LARGE
    other = wire.unpack(packed.content)
    for mine, theirs in zip(plain.json()["items"], other["items"], strict=True):
        assert mine["dense"]["values"] == theirs["dense"]["values"].tolist()


@pytest.mark.parametrize("size", [0, SMALL + 1])
@pytest.mark.parametrize(
    "entries",
    [
        [],
        [{}],
        [{"a": np.arange(3, dtype=np.float32)}, 'b"', None],
        [{"a": [{"b": number} for number in range(2 * PART + 1)], 'c"': [], "d": list(range(PART)), "e": None}, {}],
    ],
)
def test_a_list_written_by_entry_reads_as_one_written_whole(entries, size):
    fields = {"before": {"x": 1}, "list": entries, "after": None}
    whole = orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)
    assert write_json({**fields, "list": Entries(iter(entries))}, size) == whole
    nested = {"outer": fields, "other": [1]}
    written = write_json({**nested, "outer": {**fields, "list": Entries(iter(entries))}}, size)
    assert written == orjson.dumps(nested, option=orjson.OPT_SERIALIZE_NUMPY)


@pytest.mark.parametrize("accept", ["application/json", "application/msgpack"])
async def test_an_item_may_hold_more_entities_than_a_request_may_hold_entries(client, backend, accept):
    many = wire.MAX_LENGTH + 1
    item = wire.pack({"id": None, "entities": [{"label": "a"}] * many})

    class Extracting(type(backend)):
        def _encode(self, _):
            return item

    backend.__class__ = Extracting
    reply = await client.post("/v1/extract/org/model", json={"items": [{"text": "x"}]}, headers={"Accept": accept})
    body = reply.json() if accept.endswith("json") else wire.unpack(reply.content, longest=None)
    assert (reply.status_code, len(body["items"][0]["entities"])) == (200, many)

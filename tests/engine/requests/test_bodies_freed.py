"""A request leaves nothing behind: reference counts free its body with its answer, whatever way it ended."""

import asyncio
import gc
import logging
import time
import weakref
from collections.abc import Iterator

import pytest
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError, InferenceRequest, Item
from tests.engine.conftest import BOUND_S, request, until

MARK = "mark"
KINDS = {
    "answered": ({}, "ok"),
    "unknown model": ({"to": "no/such"}, "MODEL_NOT_FOUND"),
    "unknown option": ({"options": {"zzz": 1}}, "INVALID_INPUT"),
    "refused by prepare": ({"truncate": "error"}, "INPUT_TOO_LONG"),
    "prepare fails": ({"options": {"prepare_crash_text": MARK}}, "INFERENCE_ERROR"),
    "prepare lacks memory": ({"options": {"prepare_oom_text": MARK}}, "RESOURCE_EXHAUSTED"),
    "run fails": ({"options": {"crash_text": MARK}}, "INFERENCE_ERROR"),
    "run lacks memory": ({"options": {"oom_text": MARK}}, "RESOURCE_EXHAUSTED"),
    "finish fails": ({"options": {"finish_crash_text": MARK}}, "INFERENCE_ERROR"),
    "finish lacks memory": ({"options": {"finish_oom_text": MARK}}, "RESOURCE_EXHAUSTED"),
    "not a number": ({"options": {"nan_text": MARK}}, "NON_FINITE_OUTPUT"),
    "deadline": ({"options": {"latency_ms": 300.0}, "timeout_s": 0.05}, "DEADLINE_EXCEEDED"),
    "client gone": ({"options": {"latency_ms": 1000.0}, "cancel": True}, "cancelled"),
    "device lost": ({"options": {"lost_text": MARK}}, "QUEUE_UNAVAILABLE"),
}


class Body(str):
    """A text that can be watched."""


@pytest.fixture
def counts_alone() -> Iterator[None]:
    """Collect no garbage; and log nothing, as what pytest keeps of the log holds frames."""
    logging.disable()
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


async def outcome(engine, model, body, timeout_s=None, cancel=False, to=None, **fields):
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    asked = request(to or model, items=[Item(text=body)], deadline=deadline, **fields)
    before = len(RECORD.runs(model))
    task = asyncio.create_task(engine.infer(asked))
    if cancel:
        await until(lambda: len(RECORD.runs(model)) > before)
        task.cancel()
    await asyncio.wait([task], timeout=BOUND_S)  # raised here, the error and this frame would hold each other
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    return error.code if isinstance(error, InferenceError) else "ok"


@pytest.mark.parametrize("device", ["cpu", "fake"])
async def test_requests_let_their_bodies_go_without_garbage_collection(engines, counts_alone, device):
    model = engines.model("model")
    engine = await engines.start(load=[model], device=device)
    for kind, (fields, expected) in KINDS.items():
        body = Body(f"{MARK} " * (600 if expected == "INPUT_TOO_LONG" else 3))
        watched = weakref.ref(body)
        assert (kind, await outcome(engine, model, body, **fields)) == (kind, expected)
        del body
        await until(lambda watched=watched: watched() is None)


class Held(dict):
    """Metadata of an item that can be watched."""


@pytest.mark.parametrize(
    ("code", "text", "fields"),
    [
        ("INPUT_TOO_LONG", "word " * 9999, {"truncate": "error"}),
        ("INVALID_INPUT", "word", {"options": {"unknown": 1}}),
        ("NON_FINITE_OUTPUT", "word", {"options": {"nan_text": "word"}}),
        ("DEADLINE_EXCEEDED", "word", {"options": {"latency_ms": 200.0}, "deadline": 0.05}),
        (None, "word", {}),
    ],
)
async def test_the_metadata_of_a_request_is_freed_with_its_answer(engines, code, text, fields):
    model = engines.model("let-go", record=False)
    engine = await engines.start(load=[model])

    async def ask() -> weakref.ref:
        held = Held()
        deadline = time.monotonic() + fields["deadline"] if "deadline" in fields else None
        items = [Item(text=text, metadata=held)]
        wanted = InferenceRequest(model, "encode", items, request_id="r1", **{**fields, "deadline": deadline})
        answered = None
        try:
            async with asyncio.timeout(BOUND_S):  # `wait_for` would make a cycle of its own
                await engine.infer(wanted)
        except InferenceError as error:
            answered = error.code
        assert answered == code
        return weakref.ref(held)

    gc.disable()
    try:
        seen = await ask()
        async with asyncio.timeout(BOUND_S):
            while seen() is not None:  # noqa: ASYNC110 - its last batch may be on the device yet
                await asyncio.sleep(0.005)
    finally:
        gc.enable()

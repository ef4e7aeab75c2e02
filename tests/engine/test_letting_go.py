"""A request that failed is let go with its answer: until garbage is collected, its texts would be kept for long."""

import asyncio
import gc
import time
import weakref

import pytest

from sie_core.contracts import InferenceError, InferenceRequest, Item

from .conftest import BOUND_S


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
async def test_a_request_is_let_go_with_its_answer(engines, code, text, fields):
    model = engines.model("let-go", record=False)
    engine = await engines.start(load=[model])

    async def ask() -> weakref.ref:
        held = Held()
        deadline = time.monotonic() + fields["deadline"] if "deadline" in fields else None
        items = [Item(text=text, metadata=held)]
        wanted = InferenceRequest(model, "encode", items, "r1", **{**fields, "deadline": deadline})
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

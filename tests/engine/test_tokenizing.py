"""Tokens are listed for those who still wait for them, and a model is held no longer than that."""

import threading
import time

import pytest

from sie_core.contracts import InferenceError, TokenizeRequest

from .conftest import BOUND_S, bounded


async def test_a_deadline_ends_the_wait_for_a_thread_and_lets_the_model_go(engines):
    model = engines.model("words")
    engine = await engines.start(load=[model], preprocessor_workers=1)
    asked = TokenizeRequest(model, ["red fox"], "r1")
    assert [token.text for token in (await bounded(engine.tokenize(asked)))[0]] == ["red", "fox"]
    free = threading.Event()
    engine._pipeline._preparing.submit(free.wait, BOUND_S)
    try:
        late = TokenizeRequest(model, ["red fox"], "r2", deadline=time.monotonic() + 0.05)
        with pytest.raises(InferenceError) as refused:
            await bounded(engine.tokenize(late))
        assert refused.value.code == "DEADLINE_EXCEEDED"
    finally:
        free.set()
    assert await bounded(engine.unload(model))

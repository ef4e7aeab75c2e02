"""Tokens are listed for those who still wait for them, and a model is held no longer than that."""

import asyncio
import threading
import time

import pytest

from sie_core.contracts import DecodeRequest, InferenceError, TokenizeRequest
from sie_core.engine.pipeline.tokenizer_pool import MOST_WAITING

from .conftest import BOUND_S, bounded, request


async def test_a_deadline_ends_the_wait_for_a_thread_and_lets_the_model_go(engines):
    model = engines.model("words")
    engine = await engines.start(load=[model])
    asked = TokenizeRequest(model, ["red fox"], "r1")
    assert [token.text for token in (await bounded(engine.tokenize(asked)))[0]] == ["red", "fox"]
    free = threading.Event()
    engine._pipeline._tokenizing.pool.submit(free.wait, BOUND_S)
    try:
        late = TokenizeRequest(model, ["red fox"], "r2", deadline=time.monotonic() + 0.05)
        with pytest.raises(InferenceError) as refused:
            await bounded(engine.tokenize(late))
        assert refused.value.code == "DEADLINE_EXCEEDED"
    finally:
        free.set()
    assert await bounded(engine.unload(model))


async def test_what_waits_for_the_thread_is_bounded_and_holds_up_no_inference(engines):
    model = engines.model("words")
    engine = await engines.start(load=[model])
    free = threading.Event()
    engine._pipeline._tokenizing.pool.submit(free.wait, BOUND_S)
    large = TokenizeRequest(model, ["a" * MOST_WAITING, "more"], "r1")
    waiting = asyncio.create_task(engine.tokenize(large))
    try:
        await asyncio.sleep(0)  # it is begun
        with pytest.raises(InferenceError) as refused:
            await bounded(engine.tokenize(TokenizeRequest(model, ["a"], "r2")))
        assert refused.value.code == "QUEUE_FULL"
        assert len((await bounded(engine.infer(request(model, "red fox")))).items) == 1
        waiting.cancel()
        await asyncio.sleep(0)
        waiting = asyncio.create_task(engine.tokenize(TokenizeRequest(model, ["a"], "r3")))
    finally:
        free.set()
    assert [token.text for token in (await bounded(waiting))[0]] == ["a"]


async def test_a_family_without_a_way_back_from_tokens_says_so_and_lets_the_model_go(engines):
    model = engines.model("words")
    engine = await engines.start(load=[model])
    with pytest.raises(InferenceError, match="no tokenizer") as refused:
        await bounded(engine.decode(DecodeRequest(model, [[1, 2]], "r1")))
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "model")
    assert await bounded(engine.unload(model))


async def test_texts_of_tokens_wait_for_the_same_thread_no_longer_than_their_deadline(engines):
    model = engines.model("words")
    engine = await engines.start(load=[model])
    free = threading.Event()
    engine._pipeline._tokenizing.pool.submit(free.wait, BOUND_S)
    try:
        late = DecodeRequest(model, [[1]], "r2", deadline=time.monotonic() + 0.05)
        with pytest.raises(InferenceError) as refused:
            await bounded(engine.decode(late))
        assert refused.value.code == "DEADLINE_EXCEEDED"
    finally:
        free.set()
    assert await bounded(engine.unload(model))

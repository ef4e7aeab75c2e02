"""Tokens are listed for those who still wait for them, and a model is held no longer than that."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from sie_core.contracts import DecodeRequest, InferenceError, TokenizeRequest
from sie_core.engine.pipeline.tokenizing import MOST_WAITING
from tests.engine.conftest import bounded, request


async def refusal(waiting):
    with pytest.raises(InferenceError) as refused:
        await bounded(waiting)
    return refused.value


@asynccontextmanager
async def tokenizer_at_work(engines):
    """Give an engine with a model, and have another one be tokenised for meanwhile."""
    hold = engines.hold()
    held, model = engines.model("held", prepare_hold=str(hold)), engines.model("words")
    engine = await engines.start(load=[held, model])
    at_work = asyncio.create_task(engine.tokenize(TokenizeRequest(held, ["red fox"], "first")))
    await asyncio.sleep(0)  # it is begun
    yield engine, model
    hold.off()
    assert len(await bounded(at_work)) == 1
    assert await bounded(engine.unload(model))


@pytest.mark.parametrize("operation", ["tokenize", "decode"])
async def test_a_deadline_ends_the_wait_for_a_turn_and_lets_the_model_go(engines, operation):
    async with tokenizer_at_work(engines) as (engine, model):
        deadline = time.monotonic() + 0.05
        if operation == "tokenize":
            late = engine.tokenize(TokenizeRequest(model, ["red fox"], "r2", deadline=deadline))
        else:
            late = engine.decode(DecodeRequest(model, [[1]], "r2", deadline=deadline))
        assert (await refusal(late)).code == "DEADLINE_EXCEEDED"


async def test_what_waits_for_its_tokens_is_bounded_and_holds_up_no_inference(engines):
    async with tokenizer_at_work(engines) as (engine, model):
        large = ["a" * (MOST_WAITING - len("red fox"))]
        waiting = asyncio.create_task(engine.tokenize(TokenizeRequest(model, large, "r1")))
        await asyncio.sleep(0)
        assert (await refusal(engine.tokenize(TokenizeRequest(model, ["a"], "r2")))).code == "QUEUE_FULL"
        assert len((await bounded(engine.infer(request(model, "red fox")))).items) == 1
        waiting.cancel()
        await asyncio.sleep(0)
        waiting = asyncio.create_task(engine.tokenize(TokenizeRequest(model, ["red fox"], "r3")))
        await asyncio.sleep(0)
    assert [token.text for token in (await bounded(waiting))[0]] == ["red", "fox"]


async def test_a_lone_request_may_be_larger_than_what_may_wait(engines):
    model = engines.model("words")
    engine = await engines.start(load=[model])
    large = TokenizeRequest(model, ["a" * MOST_WAITING, "more"], "r1")
    assert [token.text for token in (await bounded(engine.tokenize(large)))[1]] == ["more"]


async def test_a_family_without_a_way_back_from_tokens_says_so_and_lets_the_model_go(engines):
    model = engines.model("words")
    engine = await engines.start(load=[model])
    with pytest.raises(InferenceError, match="no tokenizer") as refused:
        await bounded(engine.decode(DecodeRequest(model, [[1, 2]], "r1")))
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "model")
    assert await bounded(engine.unload(model))

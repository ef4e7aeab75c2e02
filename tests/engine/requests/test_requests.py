"""What a request may ask of a model: outputs, dtypes, sizes, options; and what the reply says of it."""

import asyncio

import numpy as np
import pytest
from sie_fake.record import RECORD
from sie_sdk.wire import unpack

from sie_core.contracts import InferenceError, Item, Media
from tests.engine.conftest import bounded, queued, request, sample, until, vectors


@pytest.fixture
async def served(engines):
    """An engine and the id of a loaded model."""
    model = engines.model("plain")
    return await engines.start(load=[model]), model


async def refused(engine, asked):
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(asked))
    assert caught.value.code == "INVALID_INPUT"
    return caught.value


async def test_dense_is_what_a_request_gets_that_names_no_output(served):
    engine, model = served
    reply = await bounded(engine.infer(request(model, "text")))
    assert set(unpack(reply.items[0])) == {"dense"}


async def test_every_output_of_a_model_comes_from_one_run(served):
    engine, model = served
    reply = await bounded(engine.infer(request(model, "a text", output_types=("multivector", "dense", "sparse"))))
    item = unpack(reply.items[0])
    assert set(item) == {"dense", "sparse", "multivector"}
    assert (item["multivector"]["num_tokens"], item["multivector"]["token_dims"]) == (2, 4)
    assert len(RECORD.runs(model)) == 1


@pytest.mark.parametrize(("dtype", "label", "kind"), [("float16", "float16", "f2"), ("ubinary", "binary", "u1")])
async def test_the_dtype_of_a_request_decides_how_its_vectors_leave(served, dtype, label, kind):
    engine, model = served
    dense = unpack((await bounded(engine.infer(request(model, "text", output_dtype=dtype)))).items[0])["dense"]
    assert (dense["dims"], dense["dtype"], dense["values"].dtype) == (8, label, np.dtype(kind))


async def test_dimensions_shorten_the_vector_and_keep_its_length_one(served):
    engine, model = served
    whole = vectors(await bounded(engine.infer(request(model, "text", dimensions=8))))[0]
    short = vectors(await bounded(engine.infer(request(model, "text", dimensions=4))))[0]
    assert short == pytest.approx(whole[:4] / np.linalg.norm(whole[:4]), abs=1e-6)
    assert np.linalg.norm(short) == pytest.approx(1.0, abs=1e-6)


async def test_ids_come_back_only_where_they_were_given(served):
    engine, model = served
    reply = await bounded(engine.infer(request(model, items=[Item(id="x", text="a"), Item(text="b")])))
    assert [unpack(item).get("id") for item in reply.items] == ["x", None]


async def test_truncation_is_reported_by_item_and_counted(served):
    engine, model = served
    reply = await bounded(engine.infer(request(model, "short", "w " * 600)))
    assert [unpack(item).get("truncated") for item in reply.items] == [None, {"tokens": 600, "kept": 512}]
    assert (reply.truncated, reply.usage.input_tokens) == (1, 513)
    assert sample(engine, "sie_truncated_items_total", model=model) == 1


async def test_truncation_can_be_refused_and_the_error_names_the_item(served):
    engine, model = served
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, "short", "w " * 600, truncate="error")))
    assert (caught.value.code, caught.value.param) == ("INPUT_TOO_LONG", "items[1].text")


async def test_query_and_document_differ_and_is_query_is_the_same_choice(served):
    engine, model = served
    query, document, plain = [
        (await bounded(engine.infer(request(model, "text", input_type=kind)))).items
        for kind in ("query", "document", None)
    ]
    by_option = (await bounded(engine.infer(request(model, "text", options={"is_query": True})))).items
    assert by_option == query
    assert len({query[0], document[0], plain[0]}) == 3


async def test_the_parts_of_the_timing_add_up_to_the_total(served):
    engine, model = served
    timing = (await bounded(engine.infer(request(model, "text")))).timing
    parts = [timing.queue_ms, timing.tokenization_ms, timing.inference_ms, timing.postprocessing_ms]
    assert min(parts) >= 0
    assert timing.inference_ms > 0
    assert sum(parts) <= timing.total_ms


async def test_waiting_for_the_device_is_told_apart_from_running_on_it(engines):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold), runtime={"latency_ms": 30.0})
    engine = await engines.start(load=[model])
    first = asyncio.create_task(engine.infer(request(model, "first")))
    await until(lambda: RECORD.runs(model))
    second = asyncio.create_task(engine.infer(request(model, "second")))
    await until(lambda: queued(engine) == 1)
    await asyncio.sleep(0.05)
    hold.off()
    first, second = [reply.timing for reply in await bounded(asyncio.gather(first, second))]
    assert first.inference_ms >= 50
    assert second.queue_ms >= 50
    assert second.inference_ms >= 30


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"output_dtype": "float64"}, "output_dtype", "float32, float16, int8, uint8, binary, ubinary"),
        ({"dimensions": 5}, "dimensions", "4, 8"),
        ({"dimensions": 4, "output_types": ("sparse",)}, "dimensions", "dense"),
        ({"options": {"scal": 2.0}}, "options.scal", "scale"),
        ({"options": {"scale": "much"}}, "options.scale", "float"),
        ({"options": {"load_s": 1.0}}, "options.load_s", "loads"),
        ({"options": {"output_types": ["dense", "tokens"]}}, "options.output_types", "dense, sparse, multivector"),
    ],
)
async def test_what_a_model_does_not_take_is_refused_and_what_it_takes_is_named(served, fields, param, said):
    engine, model = served
    error = await refused(engine, request(model, "text", **fields))
    assert error.param == param
    assert said in error.message
    assert not RECORD.runs(model)


async def test_an_output_the_model_lacks_is_refused_with_those_it_has(engines):
    engine = await engines.start(load=["sie-fake/dense"])
    error = await refused(engine, request("sie-fake/dense", "text", output_types=("dense", "sparse")))
    assert error.param == "output_types"
    assert "gives dense, not sparse" in error.message


async def test_a_profile_may_choose_the_outputs_and_the_request_still_decides(engines):
    model = engines.model("chosen", runtime={"output_types": ["sparse", "dense"], "output_dtype": "float16"})
    engine = await engines.start(load=[model])
    by_profile = unpack((await bounded(engine.infer(request(model, "text")))).items[0])
    assert {name: part["dtype"] for name, part in by_profile.items()} == {"dense": "float16", "sparse": "float16"}
    asked = request(model, "text", output_types=("dense",), output_dtype="int8")
    by_request = unpack((await bounded(engine.infer(asked))).items[0])
    assert {name: part["dtype"] for name, part in by_request.items()} == {"dense": "int8"}
    error = await refused(engine, request(model, "text", output_types=("multivector",)))
    assert "gives dense, sparse, not multivector" in error.message


async def test_an_image_to_a_text_model_is_refused_by_its_place(served):
    engine, model = served
    items = [Item(text="a"), Item(text="b", images=(Media(b"\x89PNG"),))]
    error = await refused(engine, request(model, items=items))
    assert error.param == "items[1].images"
    assert "text" in error.message


async def test_an_operation_the_model_does_not_serve_is_refused(served):
    engine, model = served
    asked = request(model, "text")
    error = await refused(engine, type(asked)(model, "extract", asked.items, request_id="r"))
    assert "serves encode, score, not extract" in error.message
    assert error.param == "model"


async def test_an_item_without_text_is_refused_by_the_adapter_and_fails_alone(served):
    engine, model = served
    error = await refused(engine, request(model, items=[Item(text="a"), Item()]))
    assert error.param == "items[1].text"

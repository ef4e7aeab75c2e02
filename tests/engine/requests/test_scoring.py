"""`score` in the engine: models with scores of their own, and models whose vectors are compared."""

import asyncio

import numpy as np
import pytest
from sie_fake.record import RECORD
from sie_sdk.wire import unpack

from sie_core.contracts import InferenceError, Item, Media
from tests.engine.conftest import bounded, request, sample, until, vectors

DOCUMENTS = ["a red fox", "the red house by the sea", "", "nothing alike"]


def scoring(model, query, *texts, **fields):
    asked = request(model, *texts, **fields)
    return type(asked)(
        **{name: getattr(asked, name) for name in asked.__slots__} | {"operation": "score", "query": query}
    )


async def scores(engine, model, query, *texts, **fields):
    reply = await bounded(engine.infer(scoring(model, Item(text=query), *texts, **fields)))
    return [unpack(item)["score"] for item in reply.items]


@pytest.fixture
async def served(engines):
    model = engines.model("plain")
    return await engines.start(load=[model]), model


async def encoded(engine, model, texts, output, input_type):
    reply = await bounded(engine.infer(request(model, *texts, output_types=(output,), input_type=input_type)))
    return [unpack(item)[output] for item in reply.items]


async def test_a_model_with_scores_of_its_own_is_asked_for_pairs(engines):
    engine = await engines.start(load=["sie-fake/reranker"])
    reply = await bounded(engine.infer(scoring("sie-fake/reranker", Item(text="red fox"), *DOCUMENTS)))
    assert [unpack(item)["score"] for item in reply.items] == [1.0, 0.5, 0.0, 0.0]
    assert reply.usage.input_tokens == sum(2 + len(text.split()) for text in DOCUMENTS)


@pytest.mark.parametrize("output", ["dense", "sparse", "multivector"])
async def test_a_model_that_encodes_scores_by_what_it_encodes_the_query_and_the_documents_to(served, output):
    engine, model = served
    (query,) = await encoded(engine, model, ["red fox"], output, "query")
    documents = await encoded(engine, model, DOCUMENTS, output, "document")
    got = await scores(engine, model, "red fox", *DOCUMENTS, options={"output_types": [output]})
    assert got == pytest.approx([expected(query, document, output) for document in documents], abs=1e-6)
    assert len(set(got)) > 1


def expected(query, document, output):
    if output == "sparse":
        weights = dict(zip(document["indices"].tolist(), document["values"].tolist(), strict=True))
        pairs = zip(query["indices"].tolist(), query["values"].tolist(), strict=True)
        return sum(value * weights.get(index, 0.0) for index, value in pairs)
    products = query["values"] @ document["values"].T
    return products if output == "dense" else products.max(axis=1).sum()


async def test_the_finest_vectors_are_compared_where_nobody_says_which(served):
    engine, model = served
    by_default = await scores(engine, model, "red fox", *DOCUMENTS)
    assert by_default == await scores(engine, model, "red fox", *DOCUMENTS, options={"output_types": ["multivector"]})


async def test_a_shortened_vector_is_compared_at_its_new_length(served):
    engine, model = served
    options = {"output_types": ["dense"], "dimensions": 4}
    reply = await bounded(engine.infer(request(model, "red fox", dimensions=4, input_type="query")))
    (query,) = vectors(reply)
    reply = await bounded(engine.infer(request(model, *DOCUMENTS, dimensions=4, input_type="document")))
    wanted = [float(np.dot(query, each)) for each in vectors(reply)]
    assert await scores(engine, model, "red fox", *DOCUMENTS, options=options) == pytest.approx(wanted, abs=1e-6)


async def test_an_instruction_is_of_the_query_alone(served):
    engine, model = served
    await scores(
        engine, model, "red fox", "a document", instruction="find animals", options={"output_types": ["dense"]}
    )
    texts = {text for run in RECORD.runs(model) for text in run.texts}
    assert texts == {"find animals query: red fox", "passage: a document"}


async def test_scores_share_batches_with_encodings(engines):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(load=[model])
    first = asyncio.create_task(engine.infer(request(model, "first")))
    await until(lambda: RECORD.runs(model))
    others = [
        asyncio.create_task(
            engine.infer(scoring(model, Item(text="a"), "b", "c", options={"output_types": ["dense"]}))
        ),
        asyncio.create_task(engine.infer(request(model, "d"))),
    ]
    await until(lambda: sample(engine, "sie_queue_units") == 4)
    hold.off()
    await bounded(asyncio.gather(first, *others))
    assert [run.size for run in RECORD.runs(model)] == [1, 4]


async def test_many_scores_at_once_are_those_of_each_alone(engines):
    model = engines.model("small", max_batch_tokens=8)
    engine = await engines.start(load=[model])
    queries = [f"query {number} red" for number in range(8)]
    alone = [await scores(engine, model, query, *DOCUMENTS) for query in queries]
    together = await asyncio.gather(*(scores(engine, model, query, *DOCUMENTS) for query in queries))
    assert list(together) == alone


async def test_usage_and_truncation_count_the_query(engines):
    engine = await engines.start(load=["sie-fake/dense"])
    reply = await bounded(engine.infer(scoring("sie-fake/dense", Item(text="w " * 20), "a b", "w " * 30)))
    assert reply.usage.input_tokens == 16 + 3 + 16
    assert reply.truncated == 2
    assert [unpack(item).get("truncated") for item in reply.items] == [None, {"tokens": 31, "kept": 16}]


@pytest.mark.parametrize(
    ("query", "fields", "param"),
    [
        (None, {}, "query"),
        (Item(text=" \n"), {}, "query.text"),
        (Item(), {}, "query.text"),
        (Item(text="a", images=(Media(b"x"),)), {}, "query.images"),
        (Item(text="a"), {"options": {"output_types": ["dense", "sparse"]}}, "options.output_types"),
        (Item(text="a"), {"options": {"outptu_dtype": "int8"}}, "options.outptu_dtype"),
        (Item(text="a"), {"demands": {"output_dtype": "int8"}}, "options.output_dtype"),
        (Item(text="a"), {"demands": {"threshold": 0.5}}, "options.threshold"),
        (Item(text="a"), {"demands": {"activation": "identity"}}, "options.activation"),
        (Item(text="a"), {"options": {"dimensions": 4}}, "options.dimensions"),
    ],
)
async def test_what_cannot_be_scored_is_refused_by_name(served, query, fields, param):
    engine, model = served
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(scoring(model, query, "a document", **fields)))
    assert (caught.value.code, caught.value.param) == ("INVALID_INPUT", param)


async def test_what_only_encode_or_extract_reads_is_passed_over_and_named(served):
    engine, model = served
    options = {"output_dtype": "int8", "is_query": False, "threshold": 0.5, "lowercase": None}
    reply = await bounded(engine.infer(scoring(model, Item(text="a"), *DOCUMENTS, options=options)))
    assert set(reply.ignored_options) == {"output_dtype", "is_query", "threshold"}
    plain = await bounded(engine.infer(scoring(model, Item(text="a"), *DOCUMENTS)))
    assert (reply.items, plain.ignored_options) == (plain.items, ())


async def test_a_query_that_is_too_long_is_refused_as_the_query(served):
    engine, model = served
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(scoring(model, Item(text="w " * 600), "a", truncate="error")))
    assert (caught.value.code, caught.value.param) == ("INPUT_TOO_LONG", "query.text")


async def test_vectors_cannot_be_chosen_where_a_model_scores_by_itself(engines):
    engine = await engines.start(load=["sie-fake/reranker"])
    with pytest.raises(InferenceError, match="has scores of its own"):
        await scores(engine, "sie-fake/reranker", "a", "b", options={"output_types": ["dense"]})


async def test_a_profiles_output_types_do_not_reach_a_model_that_scores_by_itself(engines):
    engine = await engines.start()
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request("sie-fake/reranker", "a")))
    assert "serves score, not encode" in caught.value.message


async def test_nan_never_leaves_as_a_score(engines):
    model = engines.model("sick", runtime={"nan_text": "[nan]"})
    engine = await engines.start(load=[model])
    with pytest.raises(InferenceError) as caught:
        await scores(engine, model, "a [nan]", "b")
    assert (caught.value.code, caught.value.param) == ("NON_FINITE_OUTPUT", "query")


async def test_windows_of_a_document_are_combined_before_they_are_compared(served):
    engine, model = served
    options = {"window": 2}
    long = "one two three four five"
    (query,) = await encoded(engine, model, ["one four"], "multivector", "query")
    (document,) = await encoded(engine, model, [long], "multivector", "document")
    got = await scores(engine, model, "one four", long, options={**options, "output_types": ["multivector"]})
    assert got == pytest.approx([expected(query, document, "multivector")], abs=1e-5)


async def test_an_asynchronous_device_scores_the_same(engines):
    model = engines.model("plain")
    engine = await engines.start(load=[model])
    there = await engines.start(load=[model], device="fake")
    assert await scores(there, model, "red fox", *DOCUMENTS) == await scores(engine, model, "red fox", *DOCUMENTS)


async def test_a_score_that_is_given_up_leaves_nothing_in_the_queue(engines):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold), max_batch_tokens=4)
    engine = await engines.start(load=[model])
    first = asyncio.create_task(engine.infer(request(model, "first")))
    await until(lambda: RECORD.runs(model))
    given_up = asyncio.create_task(engine.infer(scoring(model, Item(text="a"), *DOCUMENTS)))
    await until(lambda: sample(engine, "sie_queue_units") == 5)
    given_up.cancel()
    await until(lambda: sample(engine, "sie_queue_units") == 0)
    hold.off()
    await bounded(first)
    assert len(RECORD.runs(model)) == 1


async def test_a_batch_that_crashes_fails_the_score_alone(engines):
    model = engines.model("crashes", runtime={"crash_text": "[crash]"})
    engine = await engines.start(load=[model])
    asked = [
        engine.infer(scoring(model, Item(text="red"), "a", "[crash] b")),
        engine.infer(scoring(model, Item(text="red"), "a", "red")),
    ]
    failed, answered = await bounded(asyncio.gather(*asked, return_exceptions=True))
    assert failed.code == "INFERENCE_ERROR"
    assert len(answered.items) == 2

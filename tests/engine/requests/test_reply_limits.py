"""A reply beyond its limit is refused before it is computed, where its size is known by then."""

import pytest
from sie_fake.record import RECORD
from sie_sdk.wire import unpack

from sie_core.contracts import InferenceError, Item, ReplyForm
from tests.engine.conftest import bounded, request

JSON = {"float_bytes": 12.5, "integer_bytes": 3.6}


async def refused(engine, model, *texts, **fields):
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, *texts, **fields)))
    assert (caught.value.code, caught.value.spec.status) == ("REPLY_TOO_LARGE", 413)
    return caught.value.message


async def test_dense_vectors_are_known_at_once(engines):
    model = engines.model("model")
    engine = await engines.start(load=[model])
    texts = ["text"] * 100
    message = await refused(engine, model, *texts, reply=ReplyForm(100 * 131))
    assert "fewer items" in message
    assert "output_dtype" in message
    assert "msgpack" not in message
    assert not RECORD.runs(model)
    assert "msgpack" in await refused(engine, model, *texts, reply=ReplyForm(100 * 190, **JSON))
    for form in (ReplyForm(100 * 132), ReplyForm(100 * 200, **JSON)):
        assert len((await bounded(engine.infer(request(model, *texts, reply=form)))).items) == 100
    smaller = await bounded(engine.infer(request(model, *texts, reply=ReplyForm(100 * 131), output_dtype="float16")))
    assert len(smaller.items) == 100
    assert (engine.status().prepared_cost, engine.status().prepared_bytes) == (0, 0)


async def test_multi_vectors_are_known_by_their_tokens_and_nothing_is_computed_in_vain(engines):
    model = engines.model("model", max_batch_tokens=10)
    engine = await engines.start(load=[model])
    texts = ["some words of a text"] * 200
    asked = {"output_types": ("multivector",)}
    size = 200 * (100 + 5 * 16)
    await refused(engine, model, *texts, reply=ReplyForm(size - 1), **asked)
    assert not RECORD.runs(model)
    whole = await bounded(engine.infer(request(model, *texts, **asked)))
    bounded_one = await bounded(engine.infer(request(model, *texts, reply=ReplyForm(size), **asked)))
    assert list(bounded_one.items) == list(whole.items)
    assert bounded_one.usage == whole.usage


async def test_a_text_beyond_the_limit_leaves_the_model_to_others(engines):
    model = engines.model("model")
    engine = await engines.start(load=[model])
    for _ in range(3):
        await refused(engine, model, "w " * 500, output_types=("multivector",), reply=ReplyForm(1000))
    assert len((await bounded(engine.infer(request(model, "text", reply=ReplyForm(1000))))).items) == 1
    assert await bounded(engine.unload(model))


async def test_extractions_are_bounded_while_they_are_gathered(engines):
    model = engines.model("model", tasks={"extract": {"labels": "required"}}, max_batch_tokens=10)
    engine = await engines.start(load=[model])
    items = [Item(text=" ".join(f"a=entity{number}" for number in range(10)))] * 300

    def asked(most, **form):
        fields = {"items": items, "labels": ("a",), "reply": ReplyForm(most, **form)}
        made = request(model, **fields)
        return type(made)(**{name: getattr(made, name) for name in made.__slots__} | {"operation": "extract"})

    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(asked(50_000)))
    assert caught.value.code == "REPLY_TOO_LARGE"
    assert "output_dtype" not in caught.value.message
    computed = sum(len(run.texts) for run in RECORD.runs(model))
    assert 0 < computed < 300
    whole = await bounded(engine.infer(asked(2**20)))
    assert sum(len(unpack(item)["entities"]) for item in whole.items) == 3000


async def test_sparse_vectors_are_bounded_while_they_are_gathered(engines):
    model = engines.model("model", max_batch_tokens=10)
    engine = await engines.start(load=[model])
    await refused(engine, model, *["some words"] * 300, output_types=("sparse",), reply=ReplyForm(20_000))
    assert sum(len(run.texts) for run in RECORD.runs(model)) < 300

"""`extract` in the engine: what is asked, what comes back, what is refused."""

import asyncio

import pytest
from sie_fake.record import RECORD
from sie_sdk.wire import unpack

from sie_core.contracts import InferenceError, Item, Media
from tests.engine.conftest import bounded, request, sample, until

TEXT = "Here person=Ada of place=London 👩‍🔬 met person=Grace, Ada-knows->Grace today"


def extracting(model, *items, **fields):
    asked = request(model, items=[Item(text=item) if isinstance(item, str) else item for item in items], **fields)
    return type(asked)(**{name: getattr(asked, name) for name in asked.__slots__} | {"operation": "extract"})


async def extracted(engine, model, *items, **fields):
    reply = await bounded(engine.infer(extracting(model, *items, **fields)))
    return [unpack(item) for item in reply.items]


@pytest.mark.parametrize("model", ["sie-fake/extractor", "sie-fake/extractor:windowed"])
async def test_entities_and_relations_come_with_their_places_in_the_text_as_sent(engines, model):
    engine = await engines.start()
    (item,) = await extracted(engine, model, TEXT, labels=("person", "place"))
    assert [(each["label"], each["text"]) for each in item["entities"]] == [
        ("person", "Ada"),
        ("place", "London"),
        ("person", "Grace,"),
    ]
    for each in item["entities"]:
        assert TEXT[each["start"] : each["end"]] == each["text"]
    (relation,) = item["relations"]
    assert [relation[key] for key in ("head", "relation", "tail", "score")] == ["Ada", "knows", "Grace", 1.0]
    assert TEXT[slice(*relation["head_span"])] == "Ada"
    assert TEXT[slice(*relation["tail_span"])] == "Grace"
    assert (item["classifications"], item["objects"], item["data"]) == ([], [], {})


async def test_labels_classify_and_a_schema_fills_data(engines):
    engine = await engines.start()
    schema = {"properties": {"person": {"type": "array"}}}
    (item,) = await extracted(engine, "sie-fake/extractor", TEXT, labels=("today", "person"), output_schema=schema)
    assert [each["label"] for each in item["classifications"]] == ["today"]
    assert item["data"] == {"person": ["Ada", "Grace,"]}


async def test_requests_with_other_labels_and_thresholds_share_a_batch(engines):
    hold = engines.hold()
    model = engines.model("held", tasks={"extract": {"labels": "required"}}, run_hold=str(hold))
    engine = await engines.start(load=[model])
    first = asyncio.create_task(engine.infer(extracting(model, "first", labels=("a",))))
    await until(lambda: RECORD.runs(model))
    others = [
        asyncio.create_task(extracted(engine, model, "a=one b=two", labels=(label,), options={"threshold": threshold}))
        for label, threshold in (("a", 0.0), ("b", 0.0), ("a", 1.0))
    ]
    await until(lambda: sample(engine, "sie_queue_units") == 3)
    hold.off()
    await bounded(first)
    found = [[each["text"] for each in item["entities"]] for (item,) in await bounded(asyncio.gather(*others))]
    assert found == [["one"], ["two"], []]
    assert [run.size for run in RECORD.runs(model)] == [1, 3]


async def test_an_image_is_seen_and_costs_one(engines):
    engine = await engines.start()
    (item,) = await extracted(engine, "sie-fake/media", Item(images=(Media(b"\x89PNG...", "png"),)))
    assert item["objects"] == [{"label": "png", "score": 1.0, "bbox": [0.0, 0.0, 7.0, 1.0]}]
    assert [run.cost for run in RECORD.runs("sie-fake/media")] == [1]


async def test_audio_costs_its_samples_by_the_chunk(engines):
    engine = await engines.start()
    reply = await bounded(engine.infer(request("sie-fake/media", items=[Item(audio=Media(bytes(2 * 4000)))])))
    assert unpack(reply.items[0])["dense"]["dims"] == 16
    assert [run.cost for run in RECORD.runs("sie-fake/media")] == [3]


@pytest.mark.parametrize(
    ("model", "item", "fields", "param", "told"),
    [
        ("sie-fake/extractor", "a", {}, "labels", "labels is missing"),
        ("sie-fake/extractor", "a", {"labels": ("a", " ")}, "labels[1]", "blank"),
        ("sie-fake/extractor", "a", {"labels": ("a",), "options": {"treshold": 1}}, "options.treshold", "threshold"),
        (
            "sie-fake/extractor",
            "a",
            {"labels": ("a",), "options": {"threshold": 2}},
            "options.threshold",
            "most allowed",
        ),
        (
            "sie-fake/extractor",
            Item(images=(Media(b"x"),)),
            {"labels": ("a",)},
            "items[0].images",
            "takes text, no image",
        ),
        ("sie-fake/media", Item(images=(Media(b"corrupt"),)), {}, "items[0].images[0]", "cannot be decoded"),
        ("sie-fake/media", Item(audio=Media(b"RIFF?")), {}, "items[0].audio", "cannot be decoded"),
        ("sie-fake/reranker", "a", {}, "model", "serves score, not extract"),
    ],
)
async def test_what_cannot_be_extracted_is_refused_by_name(engines, model, item, fields, param, told):
    engine = await engines.start()
    with pytest.raises(InferenceError) as caught:
        await extracted(engine, model, item, **fields)
    assert (caught.value.code, caught.value.param) == ("INVALID_INPUT", param)
    assert told in caught.value.message


async def test_a_model_that_takes_no_labels_says_so(engines):
    model = engines.model("fixed", tasks={"extract": {"labels": "no"}})
    engine = await engines.start()
    with pytest.raises(InferenceError, match="takes no labels"):
        await extracted(engine, model, "a=b", labels=("a",))
    (item,) = await extracted(engine, model, "a=b")
    assert [each["label"] for each in item["entities"]] == ["a"]

"""GLiNER behind the engine and over HTTP: requests that look for different things share batches and get their own."""

import asyncio
import itertools
import random
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sie_gliner.text import tally
from sie_sdk import RequestError, SIEClient
from sie_sdk.types import Item as SdkItem
from sie_sdk.wire import unpack

from sie_core.contracts import InferenceError, InferenceRequest, Item, LoadWait
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.plugins import discover
from sie_core.settings import load_settings
from tests.conftest import run_server
from tests.gliner.planting import LABELS, Text, plant

MODEL = "test/planted"
BOUND_S = 60.0
_numbers = itertools.count()


@pytest.fixture
def models_dir(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "models" / MODEL)
    return tmp_path / "models"


@pytest.fixture
async def engine(models_dir: Path, tmp_path: Path) -> AsyncIterator[Engine]:
    settings = load_settings(models_dir=models_dir, local_cache=tmp_path / "cache", hf_fallback=False)
    plugins = discover(settings, BUILTINS)
    engine = build_engine(settings, plugins)
    await engine.start()
    yield engine
    await engine.close()


async def extract(engine: Engine, *texts: str, labels: tuple[str, ...] = LABELS, **fields: Any) -> list[dict[str, Any]]:
    items = [Item(text=text) for text in texts]
    asked = InferenceRequest(
        MODEL, "extract", items, request_id=f"r{next(_numbers)}", labels=labels, load_wait=LoadWait(BOUND_S), **fields
    )
    return [unpack(item) for item in (await asyncio.wait_for(engine.infer(asked), BOUND_S)).items]


def planted(items: list[dict[str, Any]]) -> list[list[tuple[int, int, str]]]:
    return [[(each["start"], each["end"], each["label"]) for each in item["entities"]] for item in items]


def sample(engine: Engine, name: str) -> float:
    return engine.metrics.registry.get_sample_value(name, {"model": MODEL}) or 0.0


async def test_sixteen_label_sets_at_once_get_what_each_gets_alone_and_share_batches(engine: Engine) -> None:
    chance = random.Random(1)
    asked = [
        {
            "labels": tuple(chance.sample([*LABELS, "food", "date", "name"], 1 + number % 7)),
            "options": {"threshold": 0.2 + number / 40, "flat_ner": number % 3 != 0, "multi_label": number % 5 == 0},
        }
        for number in range(16)
    ]
    texts = [plant(number, characters=60 + 30 * number).text for number in range(16)]
    alone = [await extract(engine, text, **fields) for text, fields in zip(texts, asked, strict=True)]
    batches, requests = sample(engine, "sie_batches_total"), sample(engine, "sie_batch_requests_sum")
    busy = asyncio.create_task(extract(engine, plant(50, characters=20_000).text))
    together = await asyncio.gather(*(extract(engine, text, **each) for text, each in zip(texts, asked, strict=True)))
    await busy
    assert len({fields["labels"] for fields in asked}) == 16
    for one, other in zip(alone, together, strict=True):
        assert planted(one) == planted(other)
        for entity, same in zip(one[0]["entities"], other[0]["entities"], strict=True):
            assert abs(entity["score"] - same["score"]) <= 1e-4
    shared = sample(engine, "sie_batch_requests_sum") - requests - (sample(engine, "sie_batches_total") - batches)
    assert shared >= 8, "every batch but that of one request holds units of several"


async def test_a_long_text_comes_back_whole_and_in_order_between_blank_ones(engine: Engine) -> None:
    made = [plant(seed, characters=characters) for seed, characters in ((1, 80), (2, 20_000), (3, 1_500))]
    found = planted(await extract(engine, "", *(each.text for each in made), " \n"))
    assert found == [[], *(each.planted for each in made), []]
    info = engine.model(MODEL)
    assert (info.adapter, info.operations) == ("gliner", ("extract",))
    assert "words" in info.notes["window"]


@pytest.mark.parametrize(
    ("text", "fields", "param"),
    [
        ("a", {"labels": ()}, "labels"),
        ("a", {"labels": ("city", " ")}, "labels[1]"),
        ("a", {"labels": ("city " * 200,)}, "labels"),
        ("a", {"options": {"threshold": 1.5}}, "options.threshold"),
        ("a", {"options": {"merge_adjacent_entities": True}}, "options.merge_adjacent_entities"),
        ("a", {"options": {"relation_labels": ["of"]}}, "options.relation_labels"),
        ("a", {"output_schema": {}}, "output_schema"),
    ],
)
async def test_what_cannot_be_answered_names_its_field(
    engine: Engine, text: str, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(InferenceError) as refused:
        await extract(engine, text, **fields)
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", param)


async def test_a_text_with_too_many_entities_is_refused_and_its_neighbours_in_the_batch_are_not(engine: Engine) -> None:
    labels, options = tuple("abcdefghijkl"), {"threshold": 0.0, "multi_label": True}
    text, small = "river " * 1500, plant(3, characters=300)
    with pytest.MonkeyPatch.context() as patch:
        # How many words an entity has is the checkpoint's choice, and twelve labels of the longest pass this.
        patch.setattr(tally, "MOST", 1000)
        (failed, given) = await asyncio.gather(
            extract(engine, text, labels=labels, options=options), extract(engine, small.text), return_exceptions=True
        )
    assert isinstance(failed, InferenceError)
    assert (failed.code, failed.param) == ("INVALID_INPUT", "options.threshold")
    assert planted(given) == [small.planted]
    assert len(await extract(engine, text, labels=labels, options={"threshold": 0.0})) == 1


async def test_a_label_said_twice_is_looked_for_once(engine: Engine) -> None:
    text = plant(8, characters=300).text
    assert await extract(engine, text, labels=("city", "city")) == await extract(engine, text, labels=("city",))


@pytest.fixture(scope="module")
def server(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(trained, folder / "models" / MODEL)
    with run_server(folder, args=["--preload", MODEL]) as running:
        yield running.url


@pytest.fixture
def made() -> list[Text]:
    return [plant(seed, characters=100 * seed) for seed in range(1, 6)]


def test_our_client_gets_entities_at_their_places(server: str, made: list[Text]) -> None:
    for wire_format in ("msgpack", "json"):
        with SIEClient(server, wire_format=wire_format) as client:
            results = client.extract(MODEL, [each.text for each in made], labels=list(LABELS))
            assert planted(results) == [each.planted for each in made]
            assert [each["text"] for each in results[0]["entities"]] == [
                made[0].text[start:end] for start, end, _ in made[0].planted
            ]
            one = client.extract(MODEL, SdkItem(id="a", text=made[0].text), labels=["city"], options={"threshold": 0.9})
            assert one["id"] == "a"


def test_our_client_is_told_what_is_wrong(server: str) -> None:
    with SIEClient(server) as client, pytest.raises(RequestError) as refused:
        client.extract(MODEL, "a", labels=["city " * 200])
    assert refused.value.status_code == 400
    assert "labels" in str(refused.value.param)

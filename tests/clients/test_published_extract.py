"""The published `sie-sdk` 0.10.1, unchanged, extracts with a GLiNER model."""

from __future__ import annotations

import shutil

import pytest

from tests.conftest import run_server
from tests.gliner.planting import LABELS, plant
from tests.gliner.training import train

MODEL = "test/planted"

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(published_sdk, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(train(folder / "training"), folder / "models" / MODEL)
    with run_server(folder, args=["--preload", MODEL]) as running:
        yield running.url


def test_entities_come_at_their_places(published_sdk, server):
    made = [plant(seed, characters=200 * seed) for seed in range(1, 5)]
    texts = [each.text for each in made]
    told = published_sdk.run("published_extract.py", url=server, model=MODEL, texts=texts, labels=LABELS)
    assert [result["id"] for result in told] == ["i0", "i1", "i2", "i3"]
    for result, each in zip(told, made, strict=True):
        found = [(entity["start"], entity["end"], entity["label"]) for entity in result["entities"]]
        assert found == each.planted
        assert all(entity["text"] == each.text[entity["start"] : entity["end"]] for entity in result["entities"])

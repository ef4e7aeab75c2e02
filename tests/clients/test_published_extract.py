"""The published `sie-sdk` 0.10.1, unchanged, extracts with a GLiNER model."""

from __future__ import annotations

import shutil

import pytest
from sie_kit import serving

from tests.gliner.planting import LABELS, plant

MODEL = "test/planted"

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(published_sdk, trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(trained, folder / "models" / MODEL)
    settings = {"models_dir": folder / "models", "local_cache": folder / "cache", "hf_fallback": False}
    with serving(**settings, preload_models=(MODEL,)) as running:
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

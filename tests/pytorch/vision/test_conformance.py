"""The author's kit on models of images and texts: both kinds of item, together, alone, concurrently."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sie_kit.checks.adapter import ADAPTER_CHECKS
from sie_kit.loading import LoadedModel, fitting, load_model, samples

from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import load_settings
from tests.pytorch.vision.support import WRITERS


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LoadedModel]:
    folder: Path = tmp_path_factory.mktemp("models")

    def load(kind: str) -> LoadedModel:
        WRITERS[kind](folder / "test" / kind)
        settings = load_settings(models_dir=folder, local_cache=folder / "cache", hf_fallback=False)
        return load_model(f"test/{kind}", discover(settings, BUILTINS), settings)

    return cache(load)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("check", ADAPTER_CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(check: Callable[..., Any], kind: str, model: Callable[[str], LoadedModel]) -> None:
    loaded = model(kind)
    items = fitting(samples(), loaded.adapter.facts)
    assert any(item.images for item in items)
    check(loaded, items)

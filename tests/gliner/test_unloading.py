"""An unloaded model is gone at once: servers collect garbage rarely, and a tokenizer in a cycle is megabytes a load."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.gliner.library import library
from tests.gliner.loading import asking, extract, load

HEAVY = ("sie_gliner.", "tokenizers.", "torch.")


@pytest.mark.parametrize("kind", ["span", "bi-span"])
def test_nothing_of_an_unloaded_extractor_waits_for_the_garbage_collector(tmp_path: Path, kind: str) -> None:
    folder = library().write(tmp_path, kind)

    def use() -> None:
        adapter = load(folder)
        extract(adapter, ["a text"], asking(["person"]))
        adapter.unload()

    use()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        use()
        gc.collect()
        left = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert {kind for kind in left if kind.startswith(HEAVY)} == set()

"""An unloaded model is gone at once: servers collect garbage rarely, and a tokenizer in a cycle is megabytes a load."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pytorch.bare import load_minilm
from tests.pytorch.encoders import ask, serve

HEAVY = ("sie_pytorch.", "sie_cpu.", "tokenizers.", "torch.", "transformers.models.")


def left_in_cycles(use: Callable[[], object]) -> set[str]:
    """Name the types of what only the garbage collector would free after `use`, of those that hold much."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        use()
        gc.collect()
        kinds = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()
    return {kind for kind in kinds if kind.startswith(HEAVY)}


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "qwen3", "mpnet"])
def test_nothing_of_an_unloaded_encoder_waits_for_the_garbage_collector(
    checkpoint: Callable[[str], Path], name: str
) -> None:
    def use() -> None:
        adapter = serve(checkpoint(name))
        ask(adapter, ["a text", "another one"])
        adapter.unload()

    use()
    assert left_in_cycles(use) == set()


def test_nothing_of_the_embedded_default_waits_for_it_either() -> None:
    def use() -> None:
        adapter = load_minilm()
        ask(adapter, ["a text"])
        adapter.unload()

    assert left_in_cycles(use) == set()

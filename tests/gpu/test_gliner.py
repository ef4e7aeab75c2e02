"""GLiNER on a GPU: planted entities at their places in every precision, one batch for many requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sie_core.contracts import Item
from tests.gliner.library import library
from tests.gliner.loading import asking, extract, load
from tests.gliner.planting import LABELS, plant
from tests.gpu.device import NEEDS_GPU

pytestmark = NEEDS_GPU


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    folder: Path = library().train(tmp_path_factory.mktemp("trained"))
    return cache(lambda device, precision: load(folder, precision, device=device))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_planted_entities_are_found_as_on_a_cpu(adapters: Any, precision: str) -> None:
    adapter = adapters("cuda", precision)
    assert adapter.facts.precision in (precision, "float32")
    for seed, characters in ((1, 200), (2, 20_000)):
        made = plant(seed, characters=characters)
        (output,) = extract(adapter, [made.text], asking(LABELS))
        assert [(each.start, each.end, each.label) for each in output.entities] == made.planted


def test_scores_are_those_of_a_cpu(adapters: Any) -> None:
    text = plant(3, characters=3_000).text
    (ours,), (expected,) = (
        extract(adapters(device, "float32"), [text], asking(LABELS, threshold=0.2)) for device in ("cuda", "cpu")
    )
    assert len(ours.entities) == len(expected.entities) > 50
    for one, other in zip(ours.entities, expected.entities, strict=True):
        assert abs(one.score - other.score) <= 1e-3


def test_run_returns_before_the_results_are_on_the_host(adapters: Any) -> None:
    adapter = adapters("cuda", "float32")
    units = list(adapter.prepare([Item(text=plant(4, characters=200).text)], asking(LABELS)))
    raws = [adapter.run(units) for _ in range(4)]
    outputs = [adapter.finish(units, raw) for raw in raws]
    assert all(output[0].entities == outputs[0][0].entities for output in outputs)

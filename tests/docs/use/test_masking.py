"""The page's example that masks names, run against a tiny model of the same labels in place of the one from the Hub."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import run_server
from tests.docs.following import Step, follow, steps
from tests.pytorch.tokens.training import LABELS, train

PAGE = Path(__file__).parents[3] / "docs/use/operations.md"
MODEL = re.compile(r"sie serve (\S+)")


def masking() -> tuple[str, Step]:
    """Find the model that the page has served for the example, and the example."""
    found = steps(PAGE)
    at = next(number for number, step in enumerate(found) if step.language == "sh" and MODEL.match(step.code))
    model = MODEL.match(found[at].code)
    assert model is not None
    return model[1], found[at + 1]


def test_names_and_places_are_masked_as_the_page_says(tmp_path: Path) -> None:
    model, example = masking()
    assert f'"{model}"' in example.code
    assert example.printed is not None
    train(tmp_path / "models" / model)
    with run_server(tmp_path, {"SIE_DEFAULT_COMPUTE_PRECISION": "float32"}) as server:
        printed = follow(example, server.url, tmp_path)
        assert "Marsh" not in printed
        with pytest.raises(AssertionError, match="printed"):
            follow(replace(example, printed="Ada Marsh wrote"), server.url, tmp_path)


def test_the_example_names_labels_of_the_model() -> None:
    _, example = masking()
    named = re.search(r"labels=\[(.*?)\]", example.code)
    assert named is not None
    assert {each.strip(' "') for each in named[1].split(",")} <= {label.partition("-")[2] for label in LABELS}

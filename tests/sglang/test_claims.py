"""Which checkpoints the families claim, by their cards alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sie_sglang.claims import LARGE, claim_embedder
from sie_sglang.options import ENGINE_OPTIONS

from sie_core.catalog import read_card
from sie_core.contracts import Claim
from tests.pytorch.pairs.support import change_json


@pytest.fixture
def folder(embedders: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(embedders / "test" / "qwen2", tmp_path / "model"))


def test_large_weights_come_before_the_families_of_this_process(folder: Path) -> None:
    small = claim_embedder(read_card(folder))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": LARGE + 1}}))
    large = claim_embedder(read_card(folder))
    assert isinstance(small, Claim)
    assert isinstance(large, Claim)
    assert small.priority < 0 < large.priority
    assert "5 GB" in large.reason


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("config.json", {"architectures": ["Qwen2Model"]}),
        ("config.json", {"is_causal": False}),
        ("1_Pooling/config.json", {"pooling_mode": "mean"}),
        ("config_sentence_transformers.json", {"truncate_dim": 8}),
    ],
)
def test_what_the_engine_computes_otherwise_is_not_claimed(folder: Path, file: str, fields: dict[str, Any]) -> None:
    assert claim_embedder(read_card(folder)) is not None
    change_json(folder / file, **fields)
    assert claim_embedder(read_card(folder)) is None


def test_vectors_that_are_not_of_unit_length_are_not_claimed(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:2]))
    assert claim_embedder(read_card(folder)) is None


def test_no_option_takes_free_text() -> None:
    assert all(option.choices or option.type is not str for option in ENGINE_OPTIONS)

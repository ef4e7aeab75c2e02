"""Half precision labels tokens as float32 does within 0.01; where it would not, float32 serves and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from sie_cpu.plugin import sie_runners
from sie_pytorch.families.tokens.loading import load
from sie_pytorch.forward.judging import logits
from sie_pytorch.forward.specs import RUNNERS

from sie_core.contracts import Adapter
from tests.pytorch.corpus import make_texts
from tests.pytorch.pairs.support import context
from tests.pytorch.tokens.support import assert_same, extract, write_token_classifier

WITHIN = 0.01
EVERY = (*RUNNERS, *sie_runners())
GENTLE = 0.05
"""What the last layer of a random head is multiplied by."""
ROUGH = 1e-6
"""A bound that no head keeps to: how far a random one moves depends on the processor's bfloat16."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute in bfloat16 whatever this processor is fast in."""
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")


def served(folder: Path, precision: str, **arguments: Any) -> Adapter:
    return load(context(folder, precision=precision, runners=EVERY, **arguments))


def test_a_rough_head_is_served_in_float32_and_a_gentle_one_in_half_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, texts = write_token_classifier("bert", tmp_path), make_texts(30, 10)
    single = served(folder, "float32")
    monkeypatch.setattr(logits, "MOST_MOVED", ROUGH)
    rough = served(folder, "float16")
    assert rough.facts.precision == "float32"
    assert "in bfloat16 its probabilities move by" in rough.facts.notes["precision"]
    assert extract(rough, texts) == extract(single, texts)
    monkeypatch.undo()
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")
    file = folder / "model.safetensors"
    tensors = {
        name: (weight * GENTLE if name == "classifier.weight" else weight).clone()
        for name, weight in load_file(file).items()
    }
    tensors["classifier.bias"] *= 0
    save_file(tensors, file, metadata={"format": "pt"})
    half, single = served(folder, "float16"), served(folder, "float32")
    assert half.facts.precision == "bfloat16"
    apart = 0
    for ours, theirs in zip(extract(half, texts), extract(single, texts), strict=True):
        if [each[:3] for each in ours] == [each[:3] for each in theirs]:
            assert_same(ours, theirs, WITHIN)
        else:
            apart += 1
    assert apart < len(texts)

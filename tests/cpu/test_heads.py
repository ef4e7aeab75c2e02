"""Heads over the kernels' states, in bfloat16: as in float32, within its tolerance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sentence_transformers.sentence_transformer import modules as st
from sie_cpu.builds import BUILDS, processor_flags
from sie_cpu.plugin import sie_runners
from sie_pytorch.families.encode.loading import load as load_encoder
from sie_pytorch.families.pairs.loading import load as load_pairs

from sie_core.contracts import Adapter, LoadContext
from tests.pytorch import encoders
from tests.pytorch.corpus import make_texts
from tests.pytorch.heads.bge_m3 import save_bge_m3
from tests.pytorch.heads.colbert import save_colbert
from tests.pytorch.heads.splade import save_splade
from tests.pytorch.models import HIDDEN, write_checkpoint
from tests.pytorch.pairs import support as pairs

HALF = next(build for build in BUILDS if build.widens)
TEXTS = make_texts(8, 12, seed=4)

pytestmark = pytest.mark.skipif(not processor_flags() >= HALF.flags, reason="no AVX-512 here")


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute in bfloat16 whatever this processor is fast in."""
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")


def calm(folder: Path) -> Path:
    """Make a checkpoint's weights small enough that bfloat16 keeps the direction of its states."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    small = {name: (weight * 0.1 if weight.ndim > 1 else weight).clone() for name, weight in weights.items()}
    save_file(small, file, metadata={"format": "pt"})
    return folder


def both(context: LoadContext, load: Callable[[LoadContext], Adapter]) -> tuple[Adapter, Adapter]:
    """Load a model in half precision and in float32, on the kernels."""
    context = replace(context, runners=tuple(sie_runners()))
    half, full = (load(replace(context, precision=precision)) for precision in ("float16", "float32"))
    assert [each.facts.notes["runner"] for each in (half, full)] == ["cpu-kernels"] * 2
    assert [each.facts.precision for each in (half, full)] == ["bfloat16", "float32"]
    return half, full


def save_dense(base: Path, folder: Path) -> None:
    encoders.save_encoder(base, folder, st.Pooling(HIDDEN, "mean"), st.Normalize())


def rows(adapter: Adapter, output: Any) -> NDArray[np.float32]:
    answer = encoders.ask(adapter, TEXTS, output_types=(output,))
    if output == "sparse":
        return answer.weights
    return np.concatenate([np.atleast_2d(getattr(each, output)) for each in answer.outputs])


@pytest.mark.parametrize(
    ("save", "outputs"),
    [
        (save_dense, ["dense"]),
        (save_splade, ["sparse"]),
        (save_colbert, ["multivector"]),
        (save_bge_m3, ["dense", "sparse", "multivector"]),
    ],
)
def test_vectors_keep_their_direction(save: Callable[..., Any], outputs: list[str], tmp_path: Path) -> None:
    base = calm(write_checkpoint("bert", tmp_path / "base"))
    save(base, tmp_path / "model")
    half, full = both(encoders.context(tmp_path / "model"), load_encoder)
    for output in outputs:
        ours, expected = rows(half, output), rows(full, output)
        cosines = (ours * expected).sum(1) / (np.linalg.norm(ours, axis=1) * np.linalg.norm(expected, axis=1))
        assert cosines.min() >= 0.999, output
        assert not np.array_equal(ours, expected), output


def test_scores_stay_close(tmp_path: Path) -> None:
    folder = calm(pairs.write_classifier("bert", tmp_path))
    half, full = both(pairs.context(folder), load_pairs)
    ours, expected = pairs.score(half), pairs.score(full)
    assert 0 < np.abs(ours - expected).max() <= 0.02 * max(1, np.abs(expected).max())

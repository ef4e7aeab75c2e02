"""Heads on a GPU: what each makes of texts, against the same head on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sie_pytorch.families.encode.loading import load
from transformers import AutoModelForMaskedLM

from sie_core.contracts import Adapter, Device, Item, Task
from tests.gpu.device import NEEDS_GPU
from tests.gpu.test_device_thread import waiting_forbidden
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import ask, context, deviation, serve
from tests.pytorch.heads.bge_m3 import save_bge_m3
from tests.pytorch.heads.colbert import EXPANSION, furthest, save_colbert
from tests.pytorch.heads.splade import save_splade
from tests.pytorch.models import write_checkpoint

pytestmark = NEEDS_GPU

BOUND = 1e-3
TEXTS = make_texts(40, 20, seed=33)


def on_gpu(folder: Path, **arguments: Any) -> Adapter:
    return load(context(folder, device=Device("cuda", asynchronous=True), **arguments))


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("trial", ["off", "all"])
def test_splade_gives_the_cpu_s_weights(
    trial: str, pooling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIE_CUDA_TRIAL", trial)
    base = write_checkpoint("bert", tmp_path / "base", loader=AutoModelForMaskedLM)
    save_splade(base, tmp_path / "splade", pooling)
    ours, cpu = (ask(load(tmp_path / "splade"), TEXTS, output_types=("sparse",)).weights for load in (on_gpu, serve))
    assert deviation(ours, cpu) <= BOUND


def test_splade_does_not_wait_on_the_device_s_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_CUDA_TRIAL", "all")
    base = write_checkpoint("bert", tmp_path / "base", loader=AutoModelForMaskedLM)
    save_splade(base, tmp_path / "splade")
    adapter = on_gpu(tmp_path / "splade")
    units = list(adapter.prepare([Item(text=text) for text in TEXTS], Task("encode", ("sparse",))))
    adapter.finish(units, adapter.run(units))
    with waiting_forbidden():
        raw = adapter.run(units)
    assert len(adapter.finish(units, raw)) == len(units)


@pytest.mark.parametrize("input_type", ["query", "document"])
def test_multi_vectors_are_the_cpu_s(input_type: str, checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    save_colbert(checkpoint("bert"), tmp_path, expansion=EXPANSION)
    asked = {"output_types": ("multivector",), "input_type": input_type}
    ours, cpu = (ask(load(tmp_path), TEXTS, **asked) for load in (on_gpu, serve))
    assert furthest(ours, [each.multivector for each in cpu.outputs if each.multivector is not None]) <= BOUND


def test_three_outputs_of_one_pass_are_the_cpu_s(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    ours, cpu = (
        ask(load(tmp_path), TEXTS, output_types=("dense", "sparse", "multivector")) for load in (on_gpu, serve)
    )
    assert deviation(ours.vectors, cpu.vectors) <= BOUND
    assert np.abs(ours.weights - cpu.weights).max() <= BOUND
    assert furthest(ours, [each.multivector for each in cpu.outputs if each.multivector is not None]) <= BOUND

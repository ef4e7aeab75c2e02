"""What a load takes at its peak: what the model keeps, and next to nothing beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from sie_cpu.builds import BUILDS, processor_flags

from tests.pytorch.tokenizers import write_tokenizer

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's own memory from files'"),
    pytest.mark.timeout(300),
]

SPARE = 1.15
"""A peak over what is kept, and what is kept over what the model is said to take."""
TENSOR = 5 << 20
"""Bytes of the largest weight of a layer in float32, and a little."""
SHAPE = {"vocab_size": 20_000, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}
TINY = {"vocab_size": 400, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
LAYERS = 8
"""Of 12.6 MB in float32 each; the table of tokens has 41 MB."""
BUILT = {build.precision for build in BUILDS if build.flags <= processor_flags()}
PACKING = [
    (files, precision, runner)
    for files, precision, runner in (
        ("float32", "bfloat16", "cpu-kernels"),
        ("bfloat16", "bfloat16", "cpu-kernels"),
        ("bfloat16", "float32", "encoder-loop"),
        ("bfloat16", "float32", "packed"),
    )
    if runner != "cpu-kernels" or precision in BUILT
]
"""Precision of the files, the one asked for, and a runner that has weights in another form than the files."""
MAPPED = [
    ("float32", "float32", "packed"),
    ("bfloat16", "bfloat16", "packed"),
]
"""The same of runners that have their weights as the files do."""
Case = tuple[str, str, str]


def write_model(folder: Path, precision: str, layers: int, **shape: int) -> None:
    model = tf.BertModel(tf.BertConfig(num_hidden_layers=layers, **shape), add_pooling_layer=False)
    model.to(getattr(torch, precision)).save_pretrained(folder)
    write_tokenizer("bert", folder)


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> dict[Case, dict[str, Any]]:
    """Load every case, in processes of their own, in bfloat16 whatever this processor is fast in."""
    tiny, folder = tmp_path_factory.mktemp("tiny"), tmp_path_factory.mktemp("large")
    for files in ("float32", "bfloat16"):
        write_model(tiny / files, files, 1, **TINY)
        write_model(folder / files, files, LAYERS, **SHAPE)
    cases = [(files, {"precision": precision, "runner": runner}) for files, precision, runner in (*PACKING, *MAPPED)]
    script = [sys.executable, "-m", "tests.pytorch.measured_loads", str(tiny), str(folder), json.dumps(cases)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "SIE_PYTORCH_CPU_BFLOAT16": "always",
    }
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=250, env=environment)
    lines = done.stdout.splitlines()
    return dict(zip((*PACKING, *MAPPED), map(json.loads, lines), strict=True))


@pytest.mark.parametrize("case", PACKING, ids=", ".join)
def test_weights_in_another_form_are_made_one_by_one_and_alone_are_kept(
    loads: dict[Case, dict[str, Any]], case: Case
) -> None:
    load = loads[case]
    assert load["runner"] == case[2]
    kept = load["own"] + load["files"]
    assert load["peak"] <= SPARE * kept + TENSOR, load
    assert kept <= SPARE * load["said"] + TENSOR, load
    # Pages of the files come in as many at once as the system reads ahead, so this holds a second copy off, no more.
    assert load["peak_with_files"] <= 1.5 * load["said"] + TENSOR, load


@pytest.mark.parametrize("case", MAPPED, ids=", ".join)
def test_weights_in_the_form_of_the_files_are_the_files(loads: dict[Case, dict[str, Any]], case: Case) -> None:
    load = loads[case]
    assert load["runner"] == case[2]
    # A copy of the weights would be all that is said.
    assert load["peak"] <= load["said"] / 2 + 2 * TENSOR, load
    assert load["files"] >= load["said"] / 2, load

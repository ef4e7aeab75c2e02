"""Whole forward passes on PyTorch's meta device, whose tensors hold nothing: a pass that looks at a value fails.

What a meta tensor cannot answer, a CUDA device can only answer after a wait. The calls to PyTorch's variable-length
attention are checked by PyTorch itself; its numbers are compared in `tests/gpu`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from sie_flash.plugin import VARLEN_LOOP
from sie_flash.runners import TorchVarlenRunner, VarlenLoopRunner
from sie_pytorch.forward import RunnerContext, RunnerUnfitError
from sie_pytorch.forward.packed import PackedRunner
from sie_pytorch.forward.transfers import Transfers
from sie_pytorch.heads.pooling import POOLERS, pool
from sie_text.heads import find_spans
from torch.nn.attention import varlen
from torch.utils._python_dispatch import TorchDispatchMode

from tests.pytorch.forward.support import PackedBatch, batch_for, forward, load_of, with_expansion
from tests.pytorch.models import ARCHITECTURES, HIDDEN, described

META = torch.device("meta")
PACKED = [name for name, architecture in ARCHITECTURES.items() if architecture.packed]
LOOPED = described(VARLEN_LOOP.features)
CASES = [
    *((runner, name) for runner in (TorchVarlenRunner, PackedRunner) for name in PACKED),
    *((VarlenLoopRunner, name) for name in LOOPED),
]


def context(name: str, dtype: torch.dtype = torch.bfloat16, **fields: Any) -> RunnerContext:
    config = ARCHITECTURES[name].config()
    for field, value in fields.items():
        setattr(config, field, value)
    config.use_cache = False
    with META:
        model = tf.AutoModel.from_config(config, dtype=dtype).eval().requires_grad_(False)
    folder = Path("nowhere")
    return load_of(model, folder, dtype)


def on_meta(batch: PackedBatch) -> PackedBatch:
    types = None if batch.types is None else batch.types.to(META)
    return replace(batch, ids=batch.ids.to(META), positions=batch.positions.to(META), types=types)


@pytest.mark.parametrize(("runner", "name"), CASES)
@torch.inference_mode()
def test_a_forward_pass_never_waits_for_the_device(runner: Any, name: str) -> None:
    batch = on_meta(batch_for(name))
    states = forward(runner(context(name)), batch)
    assert states.shape == (len(batch.ids), HIDDEN)
    assert states.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3"])
@pytest.mark.parametrize("runner", [TorchVarlenRunner, PackedRunner, VarlenLoopRunner])
@torch.inference_mode()
def test_nor_does_one_over_tokens_that_nothing_attends_to(name: str, runner: Any) -> None:
    batch = on_meta(with_expansion(batch_for(name)))
    assert forward(runner(context(name)), batch).shape == (len(batch.ids), HIDDEN)


def attention_of_2_11(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *bounds: object,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    assert query.shape == key.shape == value.shape
    return torch.empty_like(query)


@pytest.mark.parametrize("name", ["bert", "qwen3"])
@torch.inference_mode()
def test_a_pytorch_whose_attention_knows_no_grouped_heads_is_given_a_key_for_each_query(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", attention_of_2_11)
    batch = on_meta(batch_for(name))
    assert forward(TorchVarlenRunner(context(name)), batch).shape == (len(batch.ids), HIDDEN)


@pytest.mark.parametrize("mode", POOLERS)
def test_pooling_never_waits_for_the_device(mode: Any) -> None:
    batch = batch_for("bert")
    bounds = batch.cu_seqlens.numpy()
    spans = find_spans(bounds, bounds[:-1] * 0 + 2, Transfers(META).upload)
    states = torch.empty(len(batch.ids), HIDDEN, device=META, dtype=torch.bfloat16)
    assert pool(states, spans, (mode,)).shape == (len(bounds) - 1, HIDDEN)


def test_a_model_in_float32_is_refused() -> None:
    runner = TorchVarlenRunner(context("bert", torch.float32))
    with pytest.raises(RunnerUnfitError, match=r"in float32, and torch\.nn\.attention\.varlen takes"):
        forward(runner, on_meta(batch_for("bert")))


def test_the_loop_refuses_one_before_it_takes_a_weight() -> None:
    with pytest.raises(RunnerUnfitError, match=r"its attention is in float32, and \S+ takes"):
        VarlenLoopRunner(context("bert", torch.float32))


class Operators(TorchDispatchMode):
    """Notes every operator that computes something; views are none."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.names[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


ATTENTION, PRODUCT, IN_PLACE, NORM = "_flash_attention_forward", "addmm", "addmm_", "layer_norm"
KERNELS = {
    "bert": {PRODUCT: 1, ATTENTION: 1, IN_PLACE: 2, NORM: 2, "_addmm_activation": 1},
    "jina-v3": {PRODUCT: 1, ATTENTION: 1, IN_PLACE: 2, NORM: 2, "_addmm_activation": 1}
    | dict.fromkeys(("flip", "mul_", "addcmul_"), 1),
    "nomic": {"mm": 2, ATTENTION: 1, IN_PLACE: 2, NORM: 2, "flip": 1, "mul_": 2, "addcmul_": 1, "silu": 1},
    "qwen3": {"mm": 2, ATTENTION: 1, IN_PLACE: 2, "rms_norm": 3, "flip": 1, "mul_": 3, "addcmul_": 1, "silu": 1},
}
"""What one layer launches."""


@pytest.mark.parametrize("name", KERNELS)
@torch.inference_mode()
def test_a_layer_of_the_loop_launches_no_more_kernels_than_it_needs(name: str) -> None:
    found = []
    for layers in (2, 3):
        runner = VarlenLoopRunner(context(name, num_hidden_layers=layers))
        with Operators() as operators:
            forward(runner, on_meta(batch_for(name)))
        found.append(operators.names)
    assert found[1] - found[0] == Counter(KERNELS[name])


@pytest.mark.parametrize("loaded", [True, False], ids=["loaded in inference mode", "loaded outside"])
@pytest.mark.parametrize("taken", [True, False], ids=["taken in inference mode", "taken outside"])
def test_the_loop_takes_a_model_s_weights_in_inference_mode_and_outside(loaded: bool, taken: bool) -> None:
    with torch.inference_mode(loaded):
        given = context("bert")
    with torch.inference_mode(taken):
        runner = VarlenLoopRunner(given)
    with torch.inference_mode():
        assert forward(runner, on_meta(batch_for("bert"))).dtype == torch.bfloat16

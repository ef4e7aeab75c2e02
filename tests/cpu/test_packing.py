"""Layers of sizes that the kernels would not read are refused before anything is computed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sie_cpu.packing import Packer, UnfitError
from sie_cpu.runner import layer_parts
from sie_pytorch.forward import LayerStack
from transformers import BertConfig, BertModel, Qwen3Config, Qwen3Model

from tests.pytorch.forward.support import LOOPED
from tests.pytorch.models import DECODER, ENCODER, LAYERS_OF


class _Kernels(SimpleNamespace):
    """Packs nothing, in the layout of a build with vectors of eight numbers."""

    lanes, panel, step, weight_bytes = 8, 16, 1, 4

    def pack(self, *_: Any) -> None:
        pass


def linear(out_features: int, in_features: int) -> torch.nn.Linear:
    return torch.nn.Linear(in_features, out_features)


def pack(model: Any) -> None:
    stack = LayerStack(model, LAYERS_OF[model.config.model_type], LOOPED)
    packer = Packer(_Kernels(), stack)
    for layer, norms in zip(stack.modules, stack.norms(), strict=True):
        packer.layer(layer_parts(stack, layer, norms))


BERT_FAULTS: dict[str, Callable[[Any], None]] = {
    "keys wider than queries": lambda layer: setattr(layer.attention.self, "key", linear(64, 32)),
    "another hidden size": lambda layer: setattr(layer.attention.output, "dense", linear(48, 32)),
    "narrowed from elsewhere": lambda layer: setattr(layer.output, "dense", linear(32, 64)),
    "a norm of another size": lambda layer: setattr(layer.output, "LayerNorm", torch.nn.LayerNorm(16)),
}
QWEN_FAULTS: dict[str, Callable[[Any], None]] = {
    "as many keys as queries": lambda layer: setattr(layer.self_attn, "k_proj", linear(32, 32)),
    "a gate wider than what it gates": lambda layer: setattr(layer.mlp, "gate_proj", linear(64, 32)),
    "a norm of queries of another size": lambda layer: setattr(layer.self_attn.q_norm, "weight", parameter(16)),
    "a norm of another size": lambda layer: setattr(layer.post_attention_layernorm, "weight", parameter(16)),
}
CASES = [
    *((BertModel, BertConfig(**ENCODER), fault) for fault in BERT_FAULTS.values()),
    *((Qwen3Model, Qwen3Config(**DECODER), fault) for fault in QWEN_FAULTS.values()),
]


def parameter(size: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(size))


def layers_of(model: Any) -> Any:
    return model.encoder.layer if isinstance(model, BertModel) else model.layers


@pytest.mark.parametrize(("of", "config", "fault"), CASES, ids=[*BERT_FAULTS, *QWEN_FAULTS])
@pytest.mark.parametrize("number", [0, 1])
def test_a_layer_whose_parts_do_not_fit_is_refused(
    of: Any, config: Any, fault: Callable[[Any], None], number: int
) -> None:
    model = of(config)
    pack(model)
    fault(layers_of(model)[number])
    with pytest.raises(UnfitError, match="sizes"):
        pack(model)


def test_a_layer_of_other_sizes_than_the_first_is_refused() -> None:
    model, other = (BertModel(BertConfig(**{**ENCODER, "intermediate_size": inner})) for inner in (48, 96))
    layers_of(model)[1] = layers_of(other)[1]
    with pytest.raises(UnfitError, match="sizes"):
        pack(model)


def test_norms_of_two_epsilons_are_refused() -> None:
    model = BertModel(BertConfig(**ENCODER))
    layers_of(model)[1].output.LayerNorm.eps = 0.5
    with pytest.raises(UnfitError, match=r"epsilons, 1e-12 and 0\.5"):
        pack(model)

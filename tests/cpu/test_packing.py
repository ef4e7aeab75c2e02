"""Layers of sizes that the kernels would not read are refused before anything is computed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sie_cpu.packing import Packer
from sie_cpu.table import KERNEL_ROWS
from sie_pytorch.runners import RunnerUnfitError
from transformers import BertConfig, BertModel

from tests.pytorch.models import ENCODER


class _Kernels(SimpleNamespace):
    """Packs nothing, in the layout of a build with vectors of eight numbers."""

    lanes, panel, step, element_bytes = 8, 16, 1, 4

    def pack(self, *_: Any) -> None:
        pass


def linear(out_features: int, in_features: int) -> torch.nn.Linear:
    return torch.nn.Linear(in_features, out_features)


FAULTS: dict[str, Callable[[Any], None]] = {
    "keys wider than queries": lambda layer: setattr(layer.attention.self, "key", linear(64, 32)),
    "another hidden size": lambda layer: setattr(layer.attention.output, "dense", linear(48, 32)),
    "narrowed from elsewhere": lambda layer: setattr(layer.output, "dense", linear(32, 64)),
    "a norm of another size": lambda layer: setattr(layer.output, "LayerNorm", torch.nn.LayerNorm(16)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_layer_whose_parts_do_not_fit_is_refused(fault: str) -> None:
    row, (_, layer, *_) = KERNEL_ROWS["bert"], BertModel(BertConfig(**ENCODER)).encoder.layer
    packer = Packer(_Kernels(), row, 4)
    packer.layer(layer, layer.output.LayerNorm)
    FAULTS[fault](layer)
    with pytest.raises(RunnerUnfitError, match="sizes"):
        packer.layer(layer, layer.output.LayerNorm)


def test_a_layer_of_other_sizes_than_the_first_is_refused() -> None:
    row = KERNEL_ROWS["bert"]
    first, other = (
        BertModel(BertConfig(**{**ENCODER, "intermediate_size": inner})).encoder.layer[0] for inner in (48, 96)
    )
    packer = Packer(_Kernels(), row, 4)
    packer.layer(first, first.output.LayerNorm)
    with pytest.raises(RunnerUnfitError, match="sizes"):
        packer.layer(other, other.output.LayerNorm)

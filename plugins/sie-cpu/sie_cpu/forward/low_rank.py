"""LoRA adapters in PEFT's layout, read without PEFT, for the layers of a model on the kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sie_text.recipe import (
    LOWER,
    UPPER,
    WEIGHTS_FILE,
    check_lora_shapes,
    lora_layers,
    lora_scale,
    read_lora_config,
    refuse_other_kinds,
    require_lora_files,
)

from sie_core.contracts import Lora
from sie_cpu.checkpoint.mapped import read_file
from sie_cpu.packing import Floats


@dataclass(frozen=True, slots=True, eq=False)
class LowRankFactors:
    """The LoRA update of one linear layer's weight: `upper @ lower` (arXiv 2106.09685), scale included in `upper`."""

    lower: Floats
    """`[rank, in]`."""
    upper: Floats
    """`[out, rank]`."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LowRank:
    """One LoRA adapter: factors by the dotted name of the linear layer they are for, below the base model."""

    factors: Mapping[str, LowRankFactors]


class AdaptedRunner(Protocol):
    """A forward pass that applies LoRA adapters."""

    @property
    def linear_shapes(self) -> Mapping[str, tuple[int, int]]:
        """The linear layers that factors may be for: out and in, by dotted name."""

    def pack_low_rank(self, adapter: LowRank) -> int:
        """Pack factors ahead of the first batch with them; return the bytes that they take."""


def load_lora(name: str, folder: Path, runner: AdaptedRunner) -> Lora:
    """Read the adapter in `folder` for the layers that `runner` runs.

    Returns:
        A `Lora` whose payload is a `LowRank` in float32, scaling included. Its size includes the packed copies.

    Raises:
        ModelLoadError: `CONFIG`: it is no plain LoRA, or does not fit the model's layers. `CORRUPT`: files are missing
            or damaged.
    """
    require_lora_files(folder)
    config = read_lora_config(folder)
    refuse_other_kinds(config)
    weights, shapes, factors = read_file(folder / WEIGHTS_FILE), runner.linear_shapes, {}
    for key, layer in lora_layers(weights, shapes).items():
        lower, upper = weights[key + LOWER], weights[key + UPPER]
        check_lora_shapes(layer, lower.shape, upper.shape, shapes[layer])
        scale = lora_scale(config, key, lower.shape[0])
        factors[layer] = LowRankFactors(lower.read().copy(), upper.read() * scale)
    payload = LowRank(factors)
    size = sum(part.lower.nbytes + part.upper.nbytes for part in factors.values())
    return Lora(name, payload, size + runner.pack_low_rank(payload))

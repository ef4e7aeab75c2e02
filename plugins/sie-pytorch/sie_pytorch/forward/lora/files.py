"""LoRA adapters in PEFT's layout: read by PEFT, checked against the layers of a runner, made into its factors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sie_text.recipe import (
    CONFIG_FILE,
    LOWER,
    UPPER,
    WEIGHTS_FILE,
    check_lora_shapes,
    lora_layers,
    lora_scale,
    refuse_other_kinds,
    require_lora_files,
)

from sie_core.contracts import Lora, ModelLoadError

if TYPE_CHECKING:
    from sie_pytorch.forward import BuiltRunner, Factors


def load_lora(name: str, folder: Path, runner: BuiltRunner, device: torch.device) -> Lora:
    """Read the adapter in `folder` for the layers that `runner` runs.

    Returns:
        A `Lora` whose payload is a `LowRank` on `device`, in float32, scaling included. Its size includes the runner's
        own copies.

    Raises:
        ModelLoadError: `CONFIG`: it is no plain LoRA (DoRA, biases, whole modules, embeddings), or does not fit the
            model's layers. `CORRUPT`: files are missing or unreadable.
    """
    # PEFT takes a second to import, and most models never see an adapter.
    from sie_pytorch.forward import LowRank

    config, weights = _read(folder)
    refuse_other_kinds(config)
    factors = {}
    shapes = runner.linear_shapes
    for key, layer in lora_layers(weights, shapes).items():
        lower, upper = weights[key + LOWER].float(), weights[key + UPPER].float()
        check_lora_shapes(layer, lower.shape, upper.shape, shapes[layer])
        factors[layer] = _scaled(lower, upper, lora_scale(config, key, len(lower)), device)
    payload = LowRank(factors)
    size = sum(part.lower.nbytes + part.upper.nbytes for part in factors.values())
    return Lora(name, payload, size + runner.pack_low_rank(payload))


def _read(folder: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    require_lora_files(folder)
    from peft import PeftConfig
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        config = PeftConfig.from_pretrained(str(folder))
    except (ValueError, TypeError, KeyError) as error:
        raise ModelLoadError("CONFIG", f"Its {CONFIG_FILE} is none that PEFT reads.") from error
    try:
        return config, load_file(folder / WEIGHTS_FILE)
    except (SafetensorError, OSError) as error:
        raise ModelLoadError("CORRUPT", f"Its {WEIGHTS_FILE} cannot be read.") from error


def _scaled(lower: torch.Tensor, upper: torch.Tensor, scale: float, device: torch.device) -> Factors:
    from sie_pytorch.forward import Factors

    return Factors(lower.to(device), (upper * scale).to(device))

"""LoRA adapters in PEFT's layout: only those go to the engine that it applies as PEFT does."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from sie_text.recipe import (
    LOWER,
    UPPER,
    WEIGHTS_FILE,
    check_lora_shapes,
    lora_layers,
    read_lora_config,
    refuse_other_kinds,
    require_lora_files,
)

from sie_core.contracts import LoadContext, ModelCard, ModelLoadError
from sie_sglang.engine.launch import LORA_TARGETS

DEFAULT_RANK = 64
"""Bounds the rank of adapters where the profile does not set `max_lora_rank`: the engine reserves memory for it."""
IGNORED = ("use_rslora", "alpha_pattern", "rank_pattern")
"""Fields of PEFT's config that change an adapter's scale, and that the engine does not read."""


def most_rank(context: LoadContext) -> int:
    """The highest rank of adapters that a model takes; 0 if it takes none."""
    declared = DEFAULT_RANK if context.model.config.loras else 0
    return int(context.model.profile.loadtime.get("max_lora_rank") or declared)


def require_fit(folder: Path, card: ModelCard, most: int) -> None:
    """Refuse the adapter in `folder` unless the engine applies it to the model as PEFT does.

    Raises:
        ModelLoadError: `CONFIG`: it is no plain LoRA, does not fit the model's layers, or its rank is above `most`.
            `CORRUPT`: files are missing or unreadable.
    """
    require_lora_files(folder)
    config = read_lora_config(folder)
    refuse_other_kinds(config)
    if scaled := [name for name in IGNORED if getattr(config, name, None)]:
        raise ModelLoadError("CONFIG", f"It has `{'` and `'.join(scaled)}`, which the engine ignores.")
    factors, layers = _shapes(folder / WEIGHTS_FILE), linear_shapes(card)
    for key, layer in lora_layers(factors, layers).items():
        lower, upper = factors[key + LOWER], factors[key + UPPER]
        check_lora_shapes(layer, lower, upper, layers[layer])
        if lower[0] > most:
            raise ModelLoadError(
                "CONFIG", f"Its rank is {lower[0]}, and the engine was started for at most {most} (`max_lora_rank`)."
            )


def linear_shapes(card: ModelCard) -> dict[str, tuple[int, int]]:
    """List the layers that adapters may change: out and in, by dotted name below the transformer."""
    found = {}
    for file in sorted(card.path.glob("*.safetensors")):
        for name, shape in _shapes(file).items():
            layer = name.removesuffix(".weight").removeprefix("model.")
            if len(shape) == 2 and layer.endswith(LORA_TARGETS):
                found[layer] = (shape[0], shape[1])
    return found


def _shapes(file: Path) -> dict[str, list[int]]:
    try:
        with safe_open(file, framework="numpy") as tensors:
            return {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError) as error:
        raise ModelLoadError("CORRUPT", f"Its {file.name} cannot be read.") from error

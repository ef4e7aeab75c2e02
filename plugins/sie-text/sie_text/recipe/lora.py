"""LoRA adapters in PEFT's layout: what their config asks for, and the layers that their factors are for."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sie_core.contracts import ModelLoadError

LOWER, UPPER = ".lora_A.weight", ".lora_B.weight"
WRAPPER = "base_model.model."
"""PEFT's prefix of the base model's layers."""
UNREAD = (".pooler.dense", ".pooler")
"""Layers that PEFT adapts along with all others, but whose result no head here reads."""
CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
CHANGING_STARTS = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initialisations that subtract the first factors from the base weights: saved without PEFT's conversion, an adapter
needs those modified base weights.
"""
VARIANTS = (
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "target_parameters",
    "use_bdlora",
    "use_qalora",
    "velora_config",
)
"""Fields of PEFT's config that each make another computation of the factors."""
DEFAULTS: Mapping[str, Any] = {
    "peft_type": None,
    "use_dora": False,
    "bias": "none",
    "fan_in_fan_out": False,
    "modules_to_save": None,
    "layer_replication": None,
    "init_lora_weights": True,
    "alpha_pattern": {},
    "lora_alpha": 8,
    "use_rslora": False,
}
"""What PEFT takes for the fields that a config leaves out, of those that are read."""


def require_lora_files(folder: Path) -> None:
    """Refuse a folder without the files of an adapter.

    Raises:
        ModelLoadError: `CORRUPT`, naming the one that is missing.
    """
    for file in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / file).is_file():
            raise ModelLoadError("CORRUPT", f"It has no {file}; adapters are read in PEFT's layout, safetensors only.")


def read_lora_config(folder: Path) -> SimpleNamespace:
    """Read the config of an adapter, with PEFT's defaults for the fields that it leaves out.

    Raises:
        ModelLoadError: `CONFIG`: PEFT would not read it.
    """
    try:
        return SimpleNamespace(**{**DEFAULTS, **json.loads((folder / CONFIG_FILE).read_bytes())})
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ModelLoadError("CONFIG", f"Its {CONFIG_FILE} is none that PEFT reads.") from error


def refuse_other_kinds(config: Any) -> None:
    """Refuse adapters that change more than weights by a product of two factors.

    Raises:
        ModelLoadError: `CONFIG`.
    """
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    if kind != "LORA":
        raise ModelLoadError("CONFIG", f"It is an adapter of the kind {kind}, and only LoRA is applied.")
    others = {
        "DoRA (`use_dora`)": config.use_dora,
        f"biases (`bias: {config.bias}`)": config.bias != "none",
        "biases of its own (`lora_bias`)": getattr(config, "lora_bias", False),
        "weights stored transposed (`fan_in_fan_out`)": config.fan_in_fan_out,
        "whole modules (`modules_to_save`)": config.modules_to_save,
        "new tokens (`trainable_token_indices`)": getattr(config, "trainable_token_indices", None),
        "repeated layers (`layer_replication`)": config.layer_replication,
        f"base weights of its own (`init_lora_weights: {config.init_lora_weights}`)": _changes_base(config),
        **{f"a computation of its own (`{name}`)": getattr(config, name, None) for name in VARIANTS},
    }
    found = [what for what, there in others.items() if there]
    if found:
        raise ModelLoadError(
            "CONFIG", f"It has {' and '.join(found)}, which is not applied; merge it into the weights."
        )


def _changes_base(config: Any) -> bool:
    return str(config.init_lora_weights).lower().startswith(CHANGING_STARTS)


def lora_layers(weights: Collection[str], shapes: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Map each pair of factors to a layer, without the prefixes `base_model.model.…` and the names of wrappers.

    Raises:
        ModelLoadError: `CONFIG`: factors target a layer that the runner does not have, or two pairs target one layer
            (an encoder's and a decoder's, when the runner has only the encoder). `CORRUPT`: there are no factors.
    """
    layers: dict[str, str] = {}
    unmapped = [key for key in weights if not key.endswith((LOWER, UPPER))]
    for key in {key.removesuffix(LOWER).removesuffix(UPPER) for key in weights if key not in unmapped}:
        layer = _within(key, shapes)
        if layer is None and key.endswith(UNREAD):
            continue
        if layer is None or not {key + LOWER, key + UPPER} <= {*weights}:
            unmapped.append(key)
        else:
            layers[key] = layer
    if unmapped:
        raise ModelLoadError(
            "CONFIG", f"It changes what is no linear layer of this model's encoder: {_some(unmapped)}."
        )
    times = Counter(layers.values())
    if doubled := [key for key, layer in layers.items() if times[layer] > 1]:
        raise ModelLoadError(
            "CONFIG", f"It changes several layers where this model's encoder has one: {_some(doubled)}."
        )
    if not layers:
        raise ModelLoadError("CORRUPT", f"Its {WEIGHTS_FILE} holds no factors.")
    return layers


def _some(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _within(key: str, shapes: Mapping[str, tuple[int, int]]) -> str | None:
    name = key
    while name:
        if name in shapes:
            return name
        _, _, name = name.partition(".")
    return None


def check_lora_shapes(layer: str, lower: Sequence[int], upper: Sequence[int], shape: tuple[int, int]) -> None:
    """Refuse factors of other sizes than a layer, of the `shape` out and in.

    Raises:
        ModelLoadError: `CONFIG`.
    """
    fits = len(lower) == len(upper) == 2 and (upper[0], lower[1]) == shape and lower[0] == upper[1]
    if not fits:
        wanted = f"[rank, {shape[1]}] and [{shape[0]}, rank]"
        raise ModelLoadError(
            "CONFIG",
            f"Its factors for {layer} are {list(lower)} and {list(upper)}, and this model takes {wanted}: "
            "it was made for another base.",
        )


def lora_scale(config: Any, key: str, rank: int) -> float:
    """Compute PEFT's scaling factor, with the layer's own alpha if it has one.

    Args:
        config: PEFT's config.
        key: The name of the factors, without what stands after the layer's.
        rank: Their rank.
    """
    patterns = config.alpha_pattern or {}
    name = key.removeprefix(WRAPPER)
    # A pattern may begin with `^`, which stands for the beginning of the name in the base model.
    found = next((pattern for pattern in patterns if re.match(rf"(.*\.)?({pattern})$", name)), name)
    return float(patterns.get(found, config.lora_alpha)) / (math.sqrt(rank) if config.use_rslora else rank)

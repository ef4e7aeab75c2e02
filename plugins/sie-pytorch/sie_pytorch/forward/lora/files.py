"""LoRA adapters in PEFT's layout: read by PEFT, checked against the layers of a runner, made into its factors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sie_core.contracts import Lora, ModelLoadError

if TYPE_CHECKING:
    from sie_pytorch.forward import BuiltRunner, Factors

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
    _refuse_other_kinds(config)
    factors = {}
    shapes = runner.linear_shapes
    for key, layer in _layers(weights, shapes).items():
        lower, upper = weights[key + LOWER].float(), weights[key + UPPER].float()
        _check_shapes(layer, lower, upper, shapes[layer])
        factors[layer] = _scaled(lower, upper, _scale(config, key, len(lower)), device)
    payload = LowRank(factors)
    size = sum(part.lower.nbytes + part.upper.nbytes for part in factors.values())
    return Lora(name, payload, size + runner.pack_low_rank(payload))


def _read(folder: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    for file in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / file).is_file():
            raise ModelLoadError("CORRUPT", f"It has no {file}; adapters are read in PEFT's layout, safetensors only.")
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


def _refuse_other_kinds(config: Any) -> None:
    """Refuse what changes more than weights by a product of two factors."""
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


def _layers(weights: Mapping[str, torch.Tensor], shapes: Mapping[str, tuple[int, int]]) -> dict[str, str]:
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
        if layer is None or not {key + LOWER, key + UPPER} <= weights.keys():
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


def _check_shapes(layer: str, lower: torch.Tensor, upper: torch.Tensor, shape: tuple[int, int]) -> None:
    fits = lower.ndim == upper.ndim == 2 and (upper.shape[0], lower.shape[1]) == shape and len(lower) == upper.shape[1]
    if not fits:
        wanted = f"[rank, {shape[1]}] and [{shape[0]}, rank]"
        raise ModelLoadError(
            "CONFIG",
            f"Its factors for {layer} are {list(lower.shape)} and {list(upper.shape)}, and this model takes {wanted}: "
            "it was made for another base.",
        )


def _scale(config: Any, key: str, rank: int) -> float:
    """Compute PEFT's scaling factor, with the layer's own alpha if it has one."""
    from peft.utils.other import get_pattern_key

    patterns = config.alpha_pattern or {}
    # A pattern may begin with `^`, which stands for the beginning of the name in the base model.
    alpha = patterns.get(get_pattern_key(patterns.keys(), key.removeprefix(WRAPPER)), config.lora_alpha)
    return float(alpha) / (math.sqrt(rank) if config.use_rslora else rank)


def _scaled(lower: torch.Tensor, upper: torch.Tensor, scale: float, device: torch.device) -> Factors:
    from sie_pytorch.forward import Factors

    return Factors(lower.to(device), (upper * scale).to(device))

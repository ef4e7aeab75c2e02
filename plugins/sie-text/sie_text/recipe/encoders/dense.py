"""The modules that make one vector of a text: a pooling, and linear layers, norms and scaling after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sie_core.contracts import ModelCard, ModuleCard
from sie_text.architectures import architecture_of
from sie_text.recipe.files import SENTENCE, needed, require_features
from sie_text.recipe.settings import (
    MODES,
    DenseSettings,
    HeadSettings,
    LayerNormSettings,
    NormalizeSettings,
    NotUnderstoodError,
    PoolingMode,
    PoolingSettings,
)

LEGACY_POOLING: Mapping[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The flags that older files hold instead of `pooling_mode`; if several are set, they concatenate in this order."""

ACTIVATIONS = frozenset(
    f"torch.nn.modules.{name}"
    for name in (
        "linear.Identity",
        "activation.ELU",
        "activation.GELU",
        "activation.LeakyReLU",
        "activation.Mish",
        "activation.ReLU",
        "activation.SELU",
        "activation.SiLU",
        "activation.Sigmoid",
        "activation.Softplus",
        "activation.Tanh",
    )
)
"""Activations a Dense module may name. No other name in a file of the weights is ever imported."""


def default_mode(card: ModelCard) -> PoolingMode:
    """Read the pooling of the config, or choose as SentenceTransformer does: the last token of a causal language model,
    otherwise the mean.

    Raises:
        NotUnderstoodError: The config names a pooling that its architecture's record does not know.
    """
    record, stated = architecture_of(card), card.config.get("pooling")
    if record is not None and record.poolings and stated is not None:
        if stated not in record.poolings:
            raise NotUnderstoodError(f"its config.json asks for the pooling {stated!r}")
        return cast("PoolingMode", record.poolings[stated])
    causal = card.architectures[:1] and card.architectures[0].endswith("ForCausalLM")
    return "lasttoken" if causal and card.config.get("is_causal", True) else "mean"


def pooling_settings(config: Mapping[str, Any]) -> PoolingSettings:
    """Read a `Pooling`.

    Raises:
        NotUnderstoodError: It pools in another way.
    """
    given = config.get("pooling_mode")
    if given is None:
        given = [mode for flag, mode in LEGACY_POOLING.items() if config.get(flag)] or ["mean"]
    modes = (given,) if isinstance(given, str) else tuple(given)
    for mode in modes:
        if mode not in MODES:
            raise NotUnderstoodError(f"its Pooling asks for {mode!r}")
    return PoolingSettings(modes, bool(config.get("include_prompt", True)))


def step_settings(module: ModuleCard, feature: str = SENTENCE, default: str = SENTENCE) -> tuple[HeadSettings, ...]:
    """Read a module that maps single vectors to vectors; empty for a dropout.

    Args:
        module: Its card.
        feature: The required input and output: pooled vectors, or token vectors.
        default: The feature if its config states none.

    Raises:
        NotUnderstoodError: It uses another feature, or does something that no head does.
    """
    config, kind = module.config, module.kind
    require_features(config, kind, feature, feature if kind in {"Dropout", "LayerNorm"} else default)
    if kind == "Dropout":
        return ()
    if kind == "Normalize":
        return (NormalizeSettings(),)
    if kind == "LayerNorm":
        return (LayerNormSettings(module.path, needed(config, "dimension", kind)),)
    if kind == "Dense":
        return (_dense(module),)
    raise NotUnderstoodError(f"modules.json has a {kind} after the Pooling")


def _dense(module: ModuleCard) -> DenseSettings:
    config = module.config
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise NotUnderstoodError(f"its Dense names the activation {activation!r}")
    return DenseSettings(
        path=module.path,
        in_features=needed(config, "in_features", "Dense"),
        out_features=needed(config, "out_features", "Dense"),
        bias=bool(config.get("bias", True)),
        activation=activation.rsplit(".", 1)[-1],
        residual=bool(config.get("use_residual", False)),
    )

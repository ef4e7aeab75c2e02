"""What sentence-transformers' own files say a text encoder is: its transformer's settings, pooling and head modules.

It reads the card alone, loads no weights and imports no model library; what it cannot express it refuses by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, get_args

from sie_core.contracts import ModelCard, ModuleCard

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
MODES: tuple[PoolingMode, ...] = get_args(PoolingMode)

LEGACY_POOLING: Mapping[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The flags older files hold in place of `pooling_mode`; where several are set they concatenate in this order."""

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
"""Activations a Dense module may name. Nothing else named by a file of the weights is ever imported."""

MODEL_KWARGS = frozenset({"dtype", "torch_dtype", "attn_implementation", "add_pooling_layer", "trust_remote_code"})
"""Arguments for the transformer's class in its settings that leave the last hidden states as they are."""

TOKENIZER_KWARGS = frozenset({"model_max_length", "padding_side", "truncation_side", "trust_remote_code"})


TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "tekken.json", "*.tiktoken")
"""Names of the files a tokenizer of transformers is built from."""


class NotUnderstoodError(Exception):
    """The files describe something this family has no heads for; the message says what."""


@dataclass(frozen=True, slots=True)
class TransformerSettings:
    """How the `Transformer` module tokenises. Lengths are in tokens, special ones included."""

    max_seq_length: int | None = None
    query_length: int | None = None
    document_length: int | None = None
    do_lower_case: bool = False
    tokenizer_kwargs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class PoolingSettings:
    """How token states become one vector: the concatenation of `modes`."""

    modes: tuple[PoolingMode, ...] = ("mean",)
    include_prompt: bool = True


@dataclass(frozen=True, slots=True)
class DenseSettings:
    """A linear layer and an activation over the pooled vector; its weights lie in `path`."""

    path: Path
    in_features: int
    out_features: int
    bias: bool
    activation: str
    residual: bool


@dataclass(frozen=True, slots=True)
class LayerNormSettings:
    """A layer norm over the pooled vector; its weights lie in `path`."""

    path: Path
    dims: int


@dataclass(frozen=True, slots=True)
class NormalizeSettings:
    """Scaling to unit length."""


HeadSettings = DenseSettings | LayerNormSettings | NormalizeSettings


@dataclass(frozen=True, slots=True)
class Recipe:
    """A text encoder: Transformer → Pooling → head modules."""

    transformer: TransformerSettings = TransformerSettings()
    pooling: PoolingSettings = PoolingSettings()
    head: tuple[HeadSettings, ...] = ()
    truncate_dim: int | None = None
    """The size sentence-transformers cuts every embedding to, where the files say so."""
    declared: bool = True
    """False where the folder has no `modules.json` and the default of sentence-transformers applies."""


def read_recipe(card: ModelCard) -> Recipe:
    """Read the recipe of a text encoder from its card.

    Raises:
        NotUnderstoodError: The files ask for something this family does not do.
    """
    truncate_dim = _size(card.sentence_transformers, "truncate_dim", "config_sentence_transformers.json")
    if not card.modules:
        return Recipe(pooling=PoolingSettings((_default_mode(card),)), truncate_dim=truncate_dim, declared=False)
    for module in card.modules:
        if not module.type.startswith("sentence_transformers."):
            raise NotUnderstoodError(f"modules.json names {module.type}, a class of its own")
    kinds = [module.kind for module in card.modules]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise NotUnderstoodError(f"modules.json chains {' → '.join(kinds)}, not Transformer → Pooling → …")
    if card.modules[0].path != card.path:
        raise NotUnderstoodError("modules.json keeps its Transformer in a folder of its own")
    return Recipe(
        _transformer(card.modules[0].config),
        _pooling(card.modules[1].config),
        tuple(step for module in card.modules[2:] for step in _head(module)),
        truncate_dim,
    )


def has_tokenizer(card: ModelCard) -> bool:
    """Whether the files of a tokenizer are there; without them transformers builds one that knows no word."""
    return any(fnmatch(name, pattern) for name in card.files if "/" not in name for pattern in TOKENIZER_FILES)


def _default_mode(card: ModelCard) -> PoolingMode:
    """Choose as SentenceTransformer does: the last token of a causal language model, else the mean."""
    causal = card.architectures[:1] and card.architectures[0].endswith("ForCausalLM")
    return "lasttoken" if causal and card.config.get("is_causal", True) else "mean"


def _transformer(config: Mapping[str, Any]) -> TransformerSettings:
    file = "the Transformer's settings"
    if config.get("transformer_task", "feature-extraction") != "feature-extraction":
        raise NotUnderstoodError(f"{file} ask for the task {config['transformer_task']!r}")
    if config.get("module_output_name", "token_embeddings") != "token_embeddings":
        raise NotUnderstoodError(f"{file} give {config['module_output_name']!r} in place of token states")
    for name in ("config_args", "config_kwargs", "processing_kwargs", "query_expansion", "tokenizer_name_or_path"):
        if config.get(name):
            raise NotUnderstoodError(f"{file} set {name}")
    _only(config, ("model_args", "model_kwargs"), MODEL_KWARGS)
    tokenizer_kwargs = _only(config, ("tokenizer_args", "processor_kwargs"), TOKENIZER_KWARGS)
    _check_modalities(config.get("modality_config"))
    return TransformerSettings(
        max_seq_length=_size(config, "max_seq_length", file),
        query_length=_size(config, "query_length", file),
        document_length=_size(config, "document_length", file),
        do_lower_case=bool(config.get("do_lower_case", False)),
        tokenizer_kwargs=tuple(sorted(tokenizer_kwargs.items())),
    )


def _only(config: Mapping[str, Any], names: tuple[str, str], known: frozenset[str]) -> dict[str, Any]:
    """Merge the arguments written under the old and the new name, less the opt-in no file may give itself."""
    given = {key: value for name in names for key, value in (config.get(name) or {}).items()}
    unknown = sorted(set(given) - known)
    if unknown:
        raise NotUnderstoodError(f"the Transformer's settings set {names[1]} {', '.join(unknown)}")
    return {key: value for key, value in given.items() if key != "trust_remote_code"}


def _check_modalities(modalities: Mapping[str, Any] | None) -> None:
    if modalities is None:
        return
    if "message" in modalities:
        raise NotUnderstoodError("texts go through its chat template")
    text = modalities.get("text")
    if text is None or text.get("method") != "forward" or text.get("method_output_name") != "last_hidden_state":
        raise NotUnderstoodError("its Transformer does not take the last hidden states of a plain forward pass")


def _pooling(config: Mapping[str, Any]) -> PoolingSettings:
    given = config.get("pooling_mode")
    if given is None:
        given = [mode for flag, mode in LEGACY_POOLING.items() if config.get(flag)] or ["mean"]
    modes = (given,) if isinstance(given, str) else tuple(given)
    for mode in modes:
        if mode not in MODES:
            raise NotUnderstoodError(f"its Pooling asks for {mode!r}")
    return PoolingSettings(modes, bool(config.get("include_prompt", True)))


def _head(module: ModuleCard) -> tuple[HeadSettings, ...]:
    config, kind = module.config, module.kind
    names = {config.get(key) for key in ("module_input_name", "module_output_name")} - {None, "sentence_embedding"}
    if names:
        raise NotUnderstoodError(f"its {kind} works on {', '.join(sorted(map(str, names)))}")
    if kind == "Dropout":
        return ()
    if kind == "Normalize":
        return (NormalizeSettings(),)
    if kind == "LayerNorm":
        return (LayerNormSettings(module.path, _needed(config, "dimension", kind)),)
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
        in_features=_needed(config, "in_features", "Dense"),
        out_features=_needed(config, "out_features", "Dense"),
        bias=bool(config.get("bias", True)),
        activation=activation.rsplit(".", 1)[-1],
        residual=bool(config.get("use_residual", False)),
    )


def _needed(config: Mapping[str, Any], key: str, where: str) -> int:
    value = _size(config, key, where)
    if value is None:
        raise NotUnderstoodError(f"the config of its {where} lacks {key}")
    return value


def _size(config: Mapping[str, Any], key: str, where: str) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise NotUnderstoodError(f"{where}: {key} is {value!r}, not a whole number from 1")
    return value

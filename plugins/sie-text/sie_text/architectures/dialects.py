"""Configs of published checkpoints with other fields than transformers' class has, translated; records name these.

It reads `config.json` only; it runs no code that comes with weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sie_core.contracts import ModelLoadError

Config = Mapping[str, Any]

SHARED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
    "pad_token_id",
)
"""Fields that `NewConfig` and `GteConfig` both have, with one meaning."""


class IgnoredConfigError(ModelLoadError):
    """The config asks for something that transformers' class would silently ignore, as would every other library."""


def gte(config: Config) -> dict[str, Any] | None:
    """Translate Alibaba-NLP's `NewConfig` (gte-*-v1.5, gte-multilingual-base, Stella): transformers has it as `gte`."""
    if "rope_parameters" in config:
        return None
    _refuse_unless(config, "position_embedding_type", {None, "rope"})
    _refuse_unless(config, "layer_norm_type", {None, "layer_norm"})
    _refuse_unless(config, "logn_attention_scale", {None, False})
    _refuse_unless(config, "pack_qkv", {None, True})
    fields = {name: config[name] for name in SHARED if name in config}
    head_size = config["hidden_size"] // config["num_attention_heads"]
    theta = float(config.get("rope_theta", 10_000.0))
    return {**fields, "rope_parameters": ntk_rope(theta, config.get("rope_scaling"), head_size)}


def ntk_rope(theta: float, scaling: Mapping[str, Any] | None, head_size: int) -> dict[str, Any]:
    """Express fixed NTK scaling in transformers' terms.

    With a factor k the base is θ·k and every frequency is divided by k^(2/d): which is `linear` scaling by k^(2/d) over
    that base. Source: "Transformer upgrade road 16", https://kexue.fm/archives/9706, equation 6.

    Raises:
        ModelLoadError: `CONFIG`: another kind of scaling.
    """
    if not scaling:
        return {"rope_type": "default", "rope_theta": theta}
    _refuse_unless(scaling, "type", {"ntk"})
    _refuse_unless(scaling, "mixed_b", {None})
    factor = float(scaling["factor"])
    return {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / head_size)}


def nomic_bert(config: Config) -> dict[str, Any] | None:
    """Translate the GPT-2 like names of the first `nomic_bert` checkpoints."""
    if "n_embd" not in config:
        return None
    _refuse_unless(config, "moe_every_n_layers", {None, 0})
    _refuse_unless(config, "activation_function", {"swiglu"})
    _refuse_unless(config, "rotary_emb_fraction", {1})
    _refuse_unless(config, "rotary_emb_interleaved", {None, False})
    _refuse_unless(config, "rotary_emb_scale_base", {None})
    _refuse_unless(config, "prenorm", {None, False})
    _refuse_unless(config, "use_rms_norm", {None, False})
    _refuse_unless(config, "parallel_block", {None, False})
    _refuse_unless(config, "causal", {None, False})
    _refuse_unless(config, "rotary_scaling_factor", {None, 1})
    _refuse_unless(config, "scale_attn_weights", {None, True})
    _refuse_unless(config, "scale_attn_by_inverse_layer_idx", {None, False})
    return {
        "vocab_size": config["vocab_size"],
        "hidden_size": config["n_embd"],
        "num_hidden_layers": config["n_layer"],
        "num_attention_heads": config["n_head"],
        "intermediate_size": config.get("n_inner") or 4 * config["n_embd"],
        "hidden_act": "silu",
        "max_position_embeddings": config.get("n_positions", 2048),
        "type_vocab_size": config.get("type_vocab_size", 2),
        "layer_norm_eps": config.get("layer_norm_epsilon", 1e-12),
        "pad_token_id": config.get("pad_token_id", 0),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(config.get("rotary_emb_base", 10_000.0))},
    }


def bidirectional(config: Config) -> dict[str, Any]:
    """Translate a decoder whose own class attends both ways: transformers' classes do too if their config says so.

    Windows are refused: transformers counts those of a decoder differently once it attends both ways.
    """
    _refuse_unless(config, "is_causal", {None, False})
    _refuse_unless(config, "use_sliding_window", {None, False})
    return {**config, "is_causal": False}


def bert(config: Config) -> None:
    """Refuse Jina Embeddings v2, which states BERT's type and computes something else."""
    if config.get("position_embedding_type") == "alibi" and config.get("feed_forward_type"):
        raise ModelLoadError(
            "CONFIG",
            "The checkpoint is Jina Embeddings v2, or like it: a BERT with biases by distance (ALiBi) and gated "
            "layers, which transformers' class does not have. Set `trust_remote_code: true` in the model's config to "
            "run the code that comes with it, if you trust it; or serve `jinaai/jina-embeddings-v3-hf`.",
        )


def xlm_roberta(config: Config) -> None:
    """Refuse Jina Embeddings v3 in its first layout, which states XLM-RoBERTa's type and computes something else."""
    if config.get("lora_adaptations") and config.get("position_embedding_type") == "rotary":
        raise ModelLoadError(
            "CONFIG",
            "The checkpoint is Jina Embeddings v3 in its first layout, which needs code that comes with it. "
            "Serve `jinaai/jina-embeddings-v3-hf`: the same weights in transformers' layout.",
        )


def _refuse_unless(config: Config, name: str, allowed: set[Any]) -> None:
    if config.get(name) not in allowed:
        raise IgnoredConfigError(
            "CONFIG",
            f"config.json sets {name}={config[name]!r}, which is not served; "
            f"served is {' or '.join(sorted(repr(value) for value in allowed))}.",
        )

"""Tiny checkpoints with random weights, one function an architecture, written in the Hub's layout with a tokenizer.

Weights have a standard deviation of 0.3 or more: at transformers' own initialisation a wrong window changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as tf
from safetensors.numpy import save_file
from sie_text.architectures import RECORDS, find_architecture
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from tests.pytorch.tokenizers import write_tokenizer

VOCABULARY = 400
HIDDEN = 32
HEADS = 4
KEY_HEADS = 2
LAYERS = 3
WINDOW = 8
"""Attention windows: token i sees j where |i - j| < WINDOW, or 0 ≤ i - j < WINDOW."""
POSITIONS = 96
DEVIATION = 0.3

ENCODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}
ROBERTA = {**ENCODER, "max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1, "pad_token_id": 1}
DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "head_dim": HIDDEN // HEADS,
    "intermediate_size": 48,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 1,
}
GEMMA = {**DECODER, "query_pre_attn_scalar": HIDDEN // HEADS}
DEBERTA = {
    **ENCODER,
    "type_vocab_size": 0,
    "relative_attention": True,
    "max_relative_positions": 16,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
}


@dataclass(frozen=True)
class Architecture:
    """One architecture of the tests."""

    name: str
    config: Callable[[], Any]
    tokenizer: str = "bert"
    """`bert`, `roberta`, `t5` or `decoder`: the special tokens around a text."""
    packed: bool = True
    """Whether the packed runner serves it."""
    causal: bool = False
    window: bool = False
    learned_positions: bool = False
    model: str | None = None
    """The class saved, where it is not the base model of the config."""


def _bert_like(name: str, config: str, fields: dict[str, Any], **facts: Any) -> Architecture:
    return Architecture(name, lambda: getattr(tf, config)(**fields), learned_positions=True, **facts)


def _decoder(name: str, config: str, fields: dict[str, Any], **facts: Any) -> Architecture:
    return Architecture(name, lambda: getattr(tf, config)(**fields), "decoder", **{"causal": True, **facts})


def _distilbert() -> Any:
    return tf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=HIDDEN, n_layers=LAYERS, n_heads=HEADS, hidden_dim=48,
        max_position_embeddings=POSITIONS, pad_token_id=0,
    )  # fmt: skip


def _modernbert() -> Any:
    fields = {name: ENCODER[name] for name in ENCODER if name != "type_vocab_size"}
    special = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    # The config counts half a window and leaves its middle out: the layers see |i - j| < local_attention // 2 + 1.
    return tf.ModernBertConfig(
        **{**fields, "max_position_embeddings": 512},
        **special,
        local_attention=2 * (WINDOW - 1),
        global_attn_every_n_layers=3,
    )


def _t5() -> Any:
    return tf.T5Config(
        vocab_size=VOCABULARY, d_model=HIDDEN, d_kv=8, d_ff=48, num_layers=LAYERS, num_heads=HEADS,
        relative_attention_num_buckets=8, relative_attention_max_distance=20, feed_forward_proj="gated-gelu",
    )  # fmt: skip


GEMMA_LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]

ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        _bert_like("bert", "BertConfig", ENCODER),
        _bert_like("roberta", "RobertaConfig", ROBERTA, tokenizer="roberta"),
        _bert_like("xlm-roberta", "XLMRobertaConfig", ROBERTA, tokenizer="roberta"),
        _bert_like("camembert", "CamembertConfig", ROBERTA, tokenizer="roberta"),
        Architecture("distilbert", _distilbert, learned_positions=True),
        _bert_like("electra", "ElectraConfig", {**ENCODER, "embedding_size": 16}),
        _bert_like("albert", "AlbertConfig", {**ENCODER, "embedding_size": 16}),
        _bert_like("ernie", "ErnieConfig", {**ENCODER, "use_task_id": True}),
        _bert_like("data2vec-text", "Data2VecTextConfig", ROBERTA, tokenizer="roberta"),
        Architecture(
            "roformer",
            lambda: tf.RoFormerConfig(**{**ENCODER, "embedding_size": 16, "max_position_embeddings": 1024}),
            packed=False,
        ),
        Architecture("modernbert", _modernbert, window=True),
        Architecture("nomic", lambda: tf.NomicBertConfig(**ENCODER)),
        Architecture(
            "jina-v3", lambda: tf.JinaEmbeddingsV3Config(**{**ROBERTA, "max_position_embeddings": 512}), "roberta"
        ),
        Architecture(
            "eurobert",
            lambda: tf.EuroBertConfig(**DECODER, mask_token_id=4),
            "decoder",
        ),
        _decoder(
            "qwen2",
            "Qwen2Config",
            {**DECODER, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
            window=True,
        ),
        _decoder(
            "qwen3",
            "Qwen3Config",
            {**DECODER, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
            window=True,
        ),
        _decoder("mistral", "MistralConfig", {**DECODER, "sliding_window": WINDOW}, window=True),
        _decoder("llama", "LlamaConfig", DECODER),
        _decoder("ernie4.5", "Ernie4_5Config", DECODER),
        _decoder("phi3", "Phi3Config", {**DECODER, "sliding_window": WINDOW}, window=True),
        _decoder(
            "gemma3",
            "Gemma3TextConfig",
            {**GEMMA, "sliding_window": WINDOW, "layer_types": GEMMA_LAYERS},
            window=True,
        ),
        _decoder(
            "embeddinggemma",
            "Gemma3TextConfig",
            {
                **GEMMA,
                "sliding_window": 2 * (WINDOW - 1),
                "layer_types": GEMMA_LAYERS,
                "use_bidirectional_attention": True,
            },
            window=True,
            causal=False,
        ),
        Architecture(
            "mpnet",
            lambda: tf.MPNetConfig(**_without_types(ROBERTA)),
            "roberta",
            packed=False,
            learned_positions=True,
        ),
        Architecture("deberta", lambda: tf.DebertaConfig(**DEBERTA), packed=False),
        Architecture(
            "deberta-v2",
            lambda: tf.DebertaV2Config(**DEBERTA, position_buckets=8, share_att_key=True, norm_rel_ebd="layer_norm"),
            packed=False,
        ),
        Architecture("rembert", lambda: tf.RemBertConfig(**ENCODER, input_embedding_size=16), packed=False),
        Architecture(
            "convbert", lambda: tf.ConvBertConfig(**ENCODER, embedding_size=HIDDEN, conv_kernel_size=3), packed=False
        ),
        Architecture("t5", _t5, "t5", packed=False, model="T5EncoderModel"),
        _decoder(
            "gemma2",
            "Gemma2Config",
            {**GEMMA, "sliding_window": WINDOW, "attn_logit_softcapping": 2.0},
            window=True,
            packed=False,
        ),
    )
}
"""Every architecture that transformers has a class for. `new` (GTE, Stella) is written by `write_new` alone."""


LAYERS_OF = {each.name: found.layers for each in RECORDS if (found := find_architecture(each.name)) and found.layers}
"""The layers of the model types that a record describes."""


def described(features: frozenset[str]) -> list[str]:
    """List the architectures whose layers have no other features."""
    return [name for name, each in ARCHITECTURES.items() if _needs(each.config().model_type) <= features]


def _needs(model_type: str) -> set[str]:
    layers = LAYERS_OF.get(model_type)
    return {"a record"} if layers is None else set(layers.needs)


def _without_types(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "type_vocab_size"}


MASKED_LANGUAGE = tuple(
    name for name, each in ARCHITECTURES.items() if type(each.config()) in MODEL_FOR_MASKED_LM_MAPPING
)
"""Architectures that transformers has a masked-language-modelling head for."""


def write_checkpoint(name: str, folder: Path, *, seed: int = 0, loader: Any = None) -> Path:
    """Write a complete checkpoint of the architecture `name` and return its folder.

    `loader` is one of transformers' `AutoModelFor…`, for a checkpoint with a head.
    """
    if name == "new":
        return write_new(folder, seed=seed)
    architecture = ARCHITECTURES[name]
    config = architecture.config()
    if architecture.model and loader is None:
        model = getattr(tf, architecture.model)(config)
    else:
        model = (loader or tf.AutoModel).from_config(config)
    randomise(model, seed)
    model.save_pretrained(folder)
    write_tokenizer(architecture.tokenizer, folder)
    return folder


def randomise(model: torch.nn.Module, seed: int) -> None:
    """Give every weight a deviation of `DEVIATION`; the scales of norms lie around one, sines stay what they are."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not weight.requires_grad:
                continue
            noise = torch.randn(weight.shape, generator=generator) * DEVIATION
            scale = weight.ndim == 1 and name.endswith("weight")
            weight.copy_(1 + noise if scale and bool((weight == 1).all()) else noise)


NEW_CONFIG = {
    "architectures": ["NewModel"],
    "model_type": "new",
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm",
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "position_embedding_type": "rope",
    "rope_theta": 500.0,
    "rope_scaling": {"type": "ntk", "factor": 4.0},
    "type_vocab_size": 2,
    "pack_qkv": True,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
    "logn_attention_scale": False,
    "logn_attention_clip1": False,
}
"""`config.json` of a checkpoint of GTE's `NewModel`, the fields of the published ones."""


def write_new(folder: Path, *, seed: int = 0, prefix: str = "", **fields: Any) -> Path:
    """Write a checkpoint of GTE's `NewModel` under the published parameter names, without any class of it."""
    config = {**NEW_CONFIG, **fields}
    folder.mkdir(parents=True, exist_ok=True)
    weights = {prefix + name: weight for name, weight in _new_weights(config, np.random.default_rng(seed)).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    write_tokenizer("bert", folder)
    return folder


def _new_weights(config: dict[str, Any], random: np.random.Generator) -> dict[str, np.ndarray]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]

    def draw(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * DEVIATION).astype(np.float32)

    def norm(name: str) -> dict[str, np.ndarray]:
        return {f"{name}.weight": 1 + draw(hidden), f"{name}.bias": draw(hidden)}

    weights = {"embeddings.word_embeddings.weight": draw(config["vocab_size"], hidden), **norm("embeddings.LayerNorm")}
    if config["type_vocab_size"]:
        weights["embeddings.token_type_embeddings.weight"] = draw(config["type_vocab_size"], hidden)
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        weights |= {
            f"{layer}.attention.qkv_proj.weight": draw(3 * hidden, hidden),
            f"{layer}.attention.qkv_proj.bias": draw(3 * hidden),
            f"{layer}.attention.o_proj.weight": draw(hidden, hidden),
            f"{layer}.attention.o_proj.bias": draw(hidden),
            f"{layer}.mlp.up_gate_proj.weight": draw(2 * inner, hidden),
            f"{layer}.mlp.down_proj.weight": draw(hidden, inner),
            f"{layer}.mlp.down_proj.bias": draw(hidden),
            **norm(f"{layer}.attn_ln"),
            **norm(f"{layer}.mlp_ln"),
        }
    return weights

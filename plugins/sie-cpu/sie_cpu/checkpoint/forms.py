"""What files of a model type say beside the layers of its record: embeddings, names of tensors, defaults of configs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sie_text.architectures import Tables

Thetas = Mapping[str, tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Form:
    """One model type. Names of tensors are dotted, below the model, without `.weight`."""

    words: str
    """The embedding of token ids."""
    types: str | None = None
    """The embedding of token types; may be missing if the config says that there are none."""
    positions: str | None = None
    """The embedding of positions."""
    others: str | None = None
    """An embedding of which every token takes the first row (ERNIE's tasks), if the files hold it."""
    norm: str | None = None
    """LayerNorm of the sum."""
    widened: str | None = None
    """A linear layer from narrow embeddings to the states, if the files hold it."""
    widened_first: bool = False
    """Whether it stands before the norm."""
    scaled: bool = False
    """Whether embeddings are multiplied by the root of their size (Gemma)."""
    after_padding: bool = False
    """Whether positions are counted from the one after the padding token's id (RoBERTa)."""
    padding: int | None = None
    """The padding token's id of these positions; None: the config's `pad_token_id`."""
    biased: bool = False
    """Whether every linear layer has a bias."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Names of this type's config for sizes that others name otherwise."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of fields that a config leaves out, as in transformers."""
    epsilon: str | float = "layer_norm_eps"
    """The field with the constant of norms, or the constant."""
    thetas: Thetas = field(default_factory=dict)
    """For each kind of layer with angles of its own, or for all (``""``): the older fields for their base, and the
    default."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Parts of names in published files, and what they are called here."""
    split: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Layers of published files whose rows are those of several layers, in equal parts."""
    refused: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Fields of the config, and all values that are computed here."""


def _tables(tables: Tables, below: str = "embeddings") -> Form:
    names = {"words": tables.words, "types": tables.types, "positions": tables.positions, "norm": tables.norm}
    return Form(**{part: None if name is None else f"{below}.{name}" for part, name in names.items()})  # type: ignore[arg-type]


QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_SIZES = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
_LEARNED = {**_SIZES, "hidden_act": "gelu", "max_position_embeddings": 512, "layer_norm_eps": 1e-12}
BERT = replace(
    _tables(Tables("word_embeddings", "position_embeddings", "token_type_embeddings", norm="LayerNorm")),
    biased=True,
    defaults={**_LEARNED, "type_vocab_size": 2, "pad_token_id": 0},
)
ROBERTA = replace(BERT, after_padding=True, defaults={**BERT.defaults, "pad_token_id": 1})
_ROTARY = replace(
    BERT,
    positions=None,
    biased=False,
    renamed=(
        ("emb_ln.", "embeddings.LayerNorm."),
        ("encoder.layers.", "layers."),
        ("norm1.", "post_attention_layernorm."),
        ("norm2.", "post_mlp_layernorm."),
    ),
)
DECODER = Form(
    "embed_tokens",
    epsilon="rms_norm_eps",
    defaults={"hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 32768},
)
_QWEN = replace(DECODER, defaults={**DECODER.defaults, "max_window_layers": 28})
T5 = Form(
    "shared",
    fields={
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "head_dim": "d_kv",
        "hidden_act": "dense_act_fn",
    },
    defaults={
        "d_model": 512,
        "d_kv": 64,
        "num_layers": 6,
        "num_heads": 8,
        "layer_norm_epsilon": 1e-6,
        "relative_attention_max_distance": 128,
        "feed_forward_proj": "relu",
    },
    epsilon="layer_norm_epsilon",
    renamed=(("encoder.embed_tokens.", "shared."),),
)
_GEMMA_REFUSED = {"attn_logit_softcapping": (None,)}

FORMS: Mapping[str, Form] = {
    "bert": BERT,
    "camembert": ROBERTA,
    "data2vec-text": ROBERTA,
    "deberta-v2": replace(
        BERT,
        widened="embeddings.embed_proj",
        widened_first=True,
        defaults={**BERT.defaults, "layer_norm_eps": 1e-7, "type_vocab_size": 0},
        refused={"relative_attention": (True,), "conv_kernel_size": (None, 0)},
    ),
    "distilbert": replace(
        BERT,
        types=None,
        fields={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "hidden_act": "activation",
        },
        defaults={"dim": 768, "n_layers": 6, "n_heads": 12, "activation": "gelu", "max_position_embeddings": 512},
        epsilon=1e-12,
    ),
    "electra": replace(BERT, widened="embeddings_project"),
    "ernie": replace(BERT, others="embeddings.task_type_embeddings"),
    "ernie4_5": replace(DECODER, thetas={"": (("rope_theta",), 500_000.0)}),
    "eurobert": replace(DECODER, defaults={**DECODER.defaults, "rms_norm_eps": 1e-5}),
    "gemma3_text": replace(
        DECODER,
        scaled=True,
        fields={"hidden_act": "hidden_activation"},
        defaults={
            **DECODER.defaults,
            "hidden_activation": "gelu_pytorch_tanh",
            "head_dim": 256,
            "sliding_window": 4096,
        },
        thetas={
            "full_attention": (("rope_theta",), 1_000_000.0),
            "sliding_attention": (("rope_local_base_freq",), 10_000.0),
        },
        refused=_GEMMA_REFUSED,
    ),
    "gte": replace(
        _ROTARY,
        defaults={**_LEARNED, "type_vocab_size": 1, "max_position_embeddings": 8192},
        thetas={"": (("rope_theta",), 160_000.0)},
        renamed=(
            ("encoder.layer.", "layers."),
            ("attention.o_proj.", "self_attn.o_proj."),
            ("attn_ln.", "post_attention_layernorm."),
            ("mlp_ln.", "post_mlp_layernorm."),
        ),
        split={"attention.qkv_proj": QKV, "mlp.up_gate_proj": ("mlp.up_proj", "mlp.gate_proj")},
    ),
    "jina_embeddings_v3": replace(
        _ROTARY,
        defaults={**_LEARNED, "layer_norm_eps": 1e-5, "max_position_embeddings": 8194},
        thetas={"": (("rope_theta",), 20_000.0)},
        renamed=(*_ROTARY.renamed, ("mixer.out_proj.", "self_attn.o_proj.")),
        split={"mixer.Wqkv": QKV},
    ),
    "llama": DECODER,
    "mistral": replace(DECODER, defaults={**DECODER.defaults, "sliding_window": 4096, "num_key_value_heads": 8}),
    "modernbert": Form(
        "embeddings.tok_embeddings",
        norm="embeddings.norm",
        fields={"hidden_act": "hidden_activation"},
        defaults={
            **_SIZES,
            "num_hidden_layers": 22,
            "hidden_activation": "gelu",
            "norm_eps": 1e-5,
            "max_position_embeddings": 8192,
            "local_attention": 128,
        },
        epsilon="norm_eps",
        thetas={
            "full_attention": (("global_rope_theta",), 160_000.0),
            "sliding_attention": (("local_rope_theta",), 10_000.0),
        },
    ),
    "mpnet": replace(ROBERTA, types=None, padding=1, defaults={**ROBERTA.defaults, "type_vocab_size": 0}),
    "mt5": replace(T5, defaults={**T5.defaults, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}),
    "nomic_bert": replace(
        _ROTARY,
        defaults={**_LEARNED, "hidden_act": "silu", "type_vocab_size": 2, "max_position_embeddings": 2048},
        thetas={"": (("rope_theta",), 1000.0)},
        renamed=(
            *_ROTARY.renamed,
            ("attn.out_proj.", "self_attn.o_proj."),
            ("fc11.", "up_proj."),
            ("fc12.", "gate_proj."),
            ("fc2.", "down_proj."),
        ),
        split={"attn.Wqkv": QKV},
    ),
    "phi3": replace(DECODER, defaults={**DECODER.defaults, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096}),
    "qwen2": _QWEN,
    "qwen3": replace(_QWEN, defaults={**_QWEN.defaults, "head_dim": 128}),
    "roberta": ROBERTA,
    "roformer": replace(
        BERT,
        positions=None,
        widened="embeddings_project",
        defaults={**BERT.defaults, "max_position_embeddings": 1536},
        refused={"rotary_value": (None, False)},
    ),
    "t5": T5,
    "xlm-roberta": ROBERTA,
}
"""By the `model_type` of the class that computes a record: `Architecture.served_as`."""

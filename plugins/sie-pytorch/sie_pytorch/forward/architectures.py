"""The table of architectures: facts about each transformers model type, by name.

A row names the modules of a layer and their computation, from which a runner with its own layers decides whether it
serves the type. The proof at load checks whether the row is right. It names modules and imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal


class Feature(StrEnum):
    """Properties of layers that not every runner computes, in operators' words."""

    RMS_NORM = "RMSNorm"
    PRE_NORM = "norms before its parts"
    OWN_NORMS = "norms of what its parts give"
    HEAD_NORMS = "norms of queries and keys"
    GATE = "a gated feed-forward part"
    ROTARY = "rotary positions"
    INTERLEAVED = "interleaved rotary positions"
    WINDOWS = "attention windows"
    CAUSAL = "causal attention"
    GROUPS = "grouped heads"
    DISENTANGLED = "disentangled attention"


@dataclass(frozen=True, slots=True)
class PostNorm:
    """Norms of the sum of a part and its input: the next part takes it, and it is added to (arXiv 1706.03762)."""

    attention: str
    """The one after the attention."""
    output: str
    """The one after the feed-forward part."""


@dataclass(frozen=True, slots=True)
class PreNorm:
    """Norms of what enters a part, and one after the last layer (arXiv 2002.04745)."""

    attention: str
    """The one before the attention; of the first layer it may be `torch.nn.Identity`."""
    feed_forward: str
    """The one before the feed-forward part."""
    final: str
    """The one after the last layer, below the model."""
    post_attention_norm: str | None = None
    """Norm of the attention's output, before the residual sum."""
    post_mlp_norm: str | None = None
    """Norm of the feed-forward output, before the residual sum."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Embeddings that are a row of each of these tables, added up and normalised. Names are below the embeddings."""

    words: str
    positions: str
    types: str | None
    """If a model takes no token types, all tokens have the type 0."""
    norm: str
    """LayerNorm of the sum."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The structure of a model type's layers. Names are dotted; `layers` is below the model, others below a layer."""

    layers: str
    joined: tuple[str, ...]
    """Queries, keys and values: three linear layers, or one whose rows are all three."""
    attention_output: str
    up: tuple[str, ...]
    """The up-projection.

    With a gate: the up-projection and the gate, or one linear layer with the gate's rows first.
    """
    down: str
    norms: PostNorm | PreNorm
    norm: Literal["layer", "rms", "rms from one"] = "layer"
    """LayerNorm, RMSNorm, or RMSNorm whose weights count from one (Gemma)."""
    query_norm: str | None = None
    key_norm: str | None = None
    """RMSNorm of each head of queries and keys, before the rotation; both or none.

    Their weights count as those of `norm`.
    """
    gated: bool = False
    rotary: Literal["half", "interleaved"] | None = None
    """Which elements of a head are rotated together: those of its halves, or neighbours (arXiv 2104.09864)."""
    window: Literal["every layer", "sliding layers"] | None = None
    """Layers with the config's `sliding_window`: all, or those it lists as `sliding_attention`."""
    window_beyond: int = 0
    """Tokens by which the window reaches further than the config says."""
    groups: bool = False
    """Whether there may be fewer heads of keys and values than of queries (`num_key_value_heads`)."""
    causal: bool = False
    """Whether a token sees only those before it and itself, unless the config says otherwise."""
    disentangled: bool = False
    """Whether tokens attend to relative positions too, and these to tokens (arXiv 2006.03654)."""
    embeddings: str = "embeddings"
    """Module below the model that turns token ids into the states of the first layer."""
    tables: Tables | None = None
    """Tables of these embeddings; None if they are more than tables, or unknown."""

    @property
    def linear(self) -> tuple[str, ...]:
        """The linear layers among the parts."""
        return (*self.joined, self.attention_output, *self.up, self.down)

    @property
    def features(self) -> frozenset[Feature]:
        """Features that these layers may have; a config may omit windows, groups and causality."""
        pre = self.norms if isinstance(self.norms, PreNorm) else None
        found = {
            Feature.RMS_NORM: self.norm != "layer",
            Feature.PRE_NORM: pre is not None,
            Feature.OWN_NORMS: pre is not None and bool(pre.post_attention_norm or pre.post_mlp_norm),
            Feature.HEAD_NORMS: self.query_norm is not None,
            Feature.GATE: self.gated,
            Feature.ROTARY: self.rotary is not None,
            Feature.INTERLEAVED: self.rotary == "interleaved",
            Feature.WINDOWS: self.window is not None,
            Feature.CAUSAL: self.causal,
            Feature.GROUPS: self.groups,
            Feature.DISENTANGLED: self.disentangled,
        }
        return frozenset(feature for feature, there in found.items() if there)


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model type."""

    layers: Layers | None = None
    """None if only transformers' own class runs it."""
    encoder: bool = True
    """Whether a checkpoint of its base model without sentence-transformers' files is taken for a text encoder."""
    classifier: bool = False
    """Whether its sequence classifiers read nothing but the last states of the base model."""


BERT = Layers(
    layers="encoder.layer",
    joined=("attention.self.query", "attention.self.key", "attention.self.value"),
    attention_output="attention.output.dense",
    up=("intermediate.dense",),
    down="output.dense",
    norms=PostNorm("attention.output.LayerNorm", "output.LayerNorm"),
    tables=Tables("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm"),
)

DEBERTA = replace(
    BERT,
    joined=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"),
    disentangled=True,
    tables=None,
)

ROFORMER = replace(BERT, rotary="interleaved", tables=None)

DISTILBERT = Layers(
    layers="transformer.layer",
    joined=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    attention_output="attention.out_lin",
    up=("ffn.lin1",),
    down="ffn.lin2",
    norms=PostNorm("sa_layer_norm", "output_layer_norm"),
    tables=Tables("word_embeddings", "position_embeddings", None, "LayerNorm"),
)

JINA = Layers(
    layers="layers",
    joined=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    attention_output="self_attn.o_proj",
    up=("mlp.fc1",),
    down="mlp.fc2",
    norms=PostNorm("post_attention_layernorm", "post_mlp_layernorm"),
    rotary="half",
)

NOMIC = replace(JINA, up=("mlp.up_proj", "mlp.gate_proj"), down="mlp.down_proj", gated=True)

MODERN_BERT = Layers(
    layers="layers",
    joined=("attn.Wqkv",),
    attention_output="attn.Wo",
    up=("mlp.Wi",),
    down="mlp.Wo",
    norms=PreNorm("attn_norm", "mlp_norm", "final_norm"),
    gated=True,
    rotary="half",
    window="sliding layers",
    window_beyond=1,
)

LLAMA = replace(
    NOMIC,
    norms=PreNorm("input_layernorm", "post_attention_layernorm", "norm"),
    norm="rms",
    groups=True,
    causal=True,
    embeddings="embed_tokens",
)

QWEN2 = replace(LLAMA, window="sliding layers")

QWEN3 = replace(QWEN2, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm")

MISTRAL = replace(LLAMA, window="every layer")

PHI3 = replace(MISTRAL, joined=("self_attn.qkv_proj",), up=("mlp.gate_up_proj",))

GEMMA3 = replace(
    QWEN3,
    norm="rms from one",
    norms=PreNorm(
        "input_layernorm",
        "pre_feedforward_layernorm",
        "norm",
        post_attention_norm="post_attention_layernorm",
        post_mlp_norm="post_feedforward_layernorm",
    ),
)

ARCHITECTURES = {
    "albert": Architecture(classifier=True),
    "bart": Architecture(encoder=False, classifier=True),
    "bert": Architecture(BERT, classifier=True),
    "camembert": Architecture(BERT, classifier=True),
    "convbert": Architecture(classifier=True),
    "data2vec-text": Architecture(BERT),
    "deberta": Architecture(classifier=True),
    "deberta-v2": Architecture(DEBERTA, classifier=True),
    "distilbert": Architecture(DISTILBERT, classifier=True),
    "electra": Architecture(BERT, classifier=True),
    "ernie": Architecture(BERT, classifier=True),
    "ernie4_5": Architecture(replace(LLAMA, rotary="interleaved"), encoder=False),
    "eurobert": Architecture(replace(LLAMA, causal=False), classifier=True),
    "gemma": Architecture(encoder=False, classifier=True),
    "gemma2": Architecture(encoder=False, classifier=True),
    "gemma3_text": Architecture(GEMMA3, classifier=True),
    "gte": Architecture(NOMIC, classifier=True),
    "ibert": Architecture(),
    "jina_embeddings_v3": Architecture(JINA, classifier=True),
    "llama": Architecture(LLAMA, classifier=True),
    "megatron-bert": Architecture(),
    "mistral": Architecture(MISTRAL, classifier=True),
    "mobilebert": Architecture(),
    "modernbert": Architecture(MODERN_BERT, classifier=True),
    "mpnet": Architecture(classifier=True),
    "mt5": Architecture(),
    "new": Architecture(classifier=True),
    "nomic_bert": Architecture(NOMIC, classifier=True),
    "phi3": Architecture(PHI3, classifier=True),
    "qwen2": Architecture(QWEN2, classifier=True),
    "qwen3": Architecture(QWEN3, classifier=True),
    "rembert": Architecture(classifier=True),
    "roberta": Architecture(BERT, classifier=True),
    "roberta-prelayernorm": Architecture(),
    "roc_bert": Architecture(),
    "roformer": Architecture(ROFORMER),
    "squeezebert": Architecture(),
    "t5": Architecture(),
    "umt5": Architecture(),
    "xlm-roberta": Architecture(BERT, classifier=True),
    "xlm-roberta-xl": Architecture(classifier=True),
    "xmod": Architecture(),
}
"""Keyed by transformers' `model_type`. `new` is GTE's, read as `gte`."""

DESCRIBED = frozenset(model_type for model_type, each in ARCHITECTURES.items() if each.layers is not None)
"""The model types whose layers a row describes."""
DISENTANGLED = frozenset(
    model_type for model_type, each in ARCHITECTURES.items() if each.layers is not None and each.layers.disentangled
)
"""The types among them with disentangled attention."""


def is_encoder(model_type: str | None) -> bool:
    """Whether a plain checkpoint of the type is taken for a text encoder."""
    found = ARCHITECTURES.get(model_type or "")
    return found is not None and found.encoder


def has_classifier(model_type: str | None) -> bool:
    """Whether the type's sequence classifiers read nothing but the last states of their base model."""
    found = ARCHITECTURES.get(model_type or "")
    return found is not None and found.classifier

"""The structure of a model type's layers, by name: which modules they have, and what these compute.

A runner with its own layers states the features that it computes, and serves every model whose layers have no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from typing import Any, Literal


class Feature(StrEnum):
    """What layers may have or do, in operators' words."""

    LAYER_NORM = "LayerNorm"
    RMS_NORM = "RMSNorm"
    POST_NORM = "norms after its parts"
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
    RELATIVE_BIAS = "a relative attention bias"
    GELU = "GELU"
    TANH_GELU = "GELU by a tanh"
    RELU = "ReLU"
    SILU = "SiLU"


ACTIVATIONS: Mapping[str, Feature] = {
    "gelu": Feature.GELU,
    "gelu_new": Feature.TANH_GELU,
    "gelu_pytorch_tanh": Feature.TANH_GELU,
    "relu": Feature.RELU,
    "silu": Feature.SILU,
}
"""Keyed by transformers' names, which stand in configs."""
_OPTIONAL = frozenset({Feature.WINDOWS, Feature.CAUSAL, Feature.GROUPS})


@dataclass(frozen=True, slots=True)
class PostNorm:
    """Norms of the sum of a part and its input: the next part takes it, and it is added to (arXiv 1706.03762)."""

    attention: str
    """The one after the attention."""
    output: str
    """The one after the feed-forward part."""


@dataclass(frozen=True, slots=True)
class PreNorm:
    """Norms of a part's input, and one after the last layer (arXiv 2002.04745)."""

    attention: str
    """The one before the attention; of the first layer it may be `torch.nn.Identity`."""
    feed_forward: str
    """The one before the feed-forward part."""
    final: str
    """The one after the last layer, below the model."""
    _: KW_ONLY
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
    _: KW_ONLY
    norm: str
    """LayerNorm of the sum."""


@dataclass(frozen=True, slots=True)
class Bias:
    """Biases of attention scores by the distance of two tokens, in buckets (arXiv 1910.10683, section 2.1)."""

    table: str
    """Embedding of the buckets, `[buckets, heads]`, below the model; all layers share it."""
    farthest: int | str
    """Distance from which all share a bucket, or the field of the config that states it."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The structure of a model type's layers. Names are dotted; `layers` is below the model, others below a layer."""

    layers: str
    joined: tuple[str, ...]
    """Queries, keys and values: three linear layers, or one whose rows are all three."""
    attention_output: str
    _: KW_ONLY
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
    ungated_up: tuple[str, ...] = ()
    """The up-projection if the config says `is_gated_act: false`; empty if that changes nothing (T5)."""
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
    scaled: bool = True
    """Whether attention scores are divided by the root of a head's size."""
    bias: Bias | None = None
    """Added to the attention scores after scaling."""
    embeddings: str = "embeddings"
    """Module below the model that turns token ids into the states of the first layer."""
    tables: Tables | None = None
    """Tables of these embeddings; None if they are more than tables, or unknown."""

    @property
    def linear(self) -> tuple[str, ...]:
        """The linear layers among the parts."""
        return (*self.joined, self.attention_output, *self.up, self.down)

    @property
    def needs(self) -> frozenset[Feature]:
        """Features that these layers have, whatever the config."""
        return self.features - _OPTIONAL - ({Feature.GATE} if self.ungated_up else set())

    def of_config(self, config: Any) -> Layers:
        """Return the layers of a model with this transformers config."""
        if not self.ungated_up or getattr(config, "is_gated_act", True):
            return self
        return replace(self, gated=False, up=self.ungated_up)

    @property
    def features(self) -> frozenset[Feature]:
        """Features that these layers may have, except their activation, which stands in the config.

        The config may leave out windows, causality and groups.
        """
        pre = self.norms if isinstance(self.norms, PreNorm) else None
        found = {
            Feature.LAYER_NORM: self.norm == "layer",
            Feature.RMS_NORM: self.norm != "layer",
            Feature.POST_NORM: pre is None,
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
            Feature.RELATIVE_BIAS: self.bias is not None,
        }
        return frozenset(feature for feature, there in found.items() if there)

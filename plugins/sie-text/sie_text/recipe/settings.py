"""The settings in a recipe: those of a transformer, and of the steps from its states to vectors.

Plain values; it reads no file and imports no model library.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from sie_core.contracts import PinnedFile

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
MODES: tuple[PoolingMode, ...] = get_args(PoolingMode)


class NotUnderstoodError(Exception):
    """The files describe something this family has no heads for; the message says what."""


@dataclass(frozen=True, slots=True)
class TransformerSettings:
    """The tokenisation of the `Transformer` module. Lengths are in tokens, special ones included."""

    max_seq_length: int | None = None
    query_length: int | None = None
    document_length: int | None = None
    _: KW_ONLY
    do_lower_case: bool = False
    tokenizer_kwargs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class PoolingSettings:
    """The pooling of token states to one vector: the concatenation of `modes`."""

    modes: tuple[PoolingMode, ...] = ("mean",)
    include_prompt: bool = True


@dataclass(frozen=True, slots=True)
class DenseSettings:
    """A linear layer and an activation; its weights are in `path`."""

    path: Path
    in_features: int
    out_features: int
    _: KW_ONLY
    bias: bool
    activation: str
    residual: bool


@dataclass(frozen=True, slots=True)
class ProjectionSettings:
    """A linear layer whose sizes are in its file: `weight` and, if named, `bias` of the safetensors `file`."""

    file: Path
    weight: str
    bias: str | None = None
    _: KW_ONLY
    pinned: PinnedFile | None = None
    """The pinned hash of the file, if it is a pickle instead of safetensors."""


@dataclass(frozen=True, slots=True)
class LayerNormSettings:
    """A layer norm; its weights are in `path`."""

    path: Path
    dims: int


@dataclass(frozen=True, slots=True)
class NormalizeSettings:
    """Scaling to unit length."""


HeadSettings = DenseSettings | ProjectionSettings | LayerNormSettings | NormalizeSettings


@dataclass(frozen=True, slots=True)
class SpladeSettings:
    """Logits of the checkpoint's own masked-language-modelling head, pooled over the tokens (SPLADE)."""

    pooling: Literal["max", "sum"] = "max"
    activation: Literal["relu", "log1p_relu"] = "relu"
    """`log1p_relu` takes the logarithm twice (arXiv 2504.14839)."""
    max_active_dims: int | None = None
    """Number of largest weights that a vector keeps; None keeps all."""


@dataclass(frozen=True, slots=True)
class TokenWeightSettings:
    """A weight for every token of the text by a linear layer on its state, the largest for a token that repeats."""

    projection: ProjectionSettings


@dataclass(frozen=True, slots=True)
class ExpansionSettings:
    """Expands queries by tokens whose states represent the query too (ColBERT, arXiv 2004.12832)."""

    length: int
    """Tokens a query has at least, special ones and the filling included."""
    fixed: bool = True
    """Whether longer queries are cut to `length`."""
    attended: bool = False
    """Whether other tokens attend to the expansion; if not, only the expansion attends to the query."""
    _: KW_ONLY
    token: str | None = None
    """The added token; None takes the mask token, or the end token of a tokenizer without one."""


@dataclass(frozen=True, slots=True)
class MultivectorSettings:
    """A vector for every token that counts (ColBERT)."""

    steps: tuple[HeadSettings, ...]
    skiplist: tuple[str, ...] = ()
    """Tokens that get no vector."""
    skiplist_tasks: frozenset[str] = frozenset({"document"})
    """Roles whose tokens the skip list drops: `query`, `document`; a text without a role counts as a document."""
    _: KW_ONLY
    keep_only: frozenset[int] = frozenset()
    """Ids of the only tokens of a document that get a vector; empty for all."""
    skips_first: bool = False
    """Whether the first token gets no vector."""
    expansion: ExpansionSettings | None = None
    markers: tuple[str, ...] = ()
    """Prompts of formats older than sentence-transformers' own; their first word is one token."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A text encoder: a transformer, and one head for each kind of vector."""

    transformer: TransformerSettings = TransformerSettings()
    pooling: PoolingSettings | None = PoolingSettings()
    """How the dense vector is pooled; None if the model gives none."""
    head: tuple[HeadSettings, ...] = ()
    """The steps after the pooling."""
    _: KW_ONLY
    truncate_dim: int | None = None
    """The size to which sentence-transformers cuts every dense embedding, if the files state one."""
    declared: bool = True
    """False if the folder has no `modules.json` and the default of sentence-transformers applies."""
    sparse: SpladeSettings | TokenWeightSettings | None = None
    multivector: MultivectorSettings | None = None
    prompts: tuple[tuple[str, str], ...] = ()
    """Prompts by name from other files than `config_sentence_transformers.json`; they come before its own."""
    notes: tuple[tuple[str, str], ...] = field(default=())
    """Notes for operators on the parts of the files that the recipe leaves out."""

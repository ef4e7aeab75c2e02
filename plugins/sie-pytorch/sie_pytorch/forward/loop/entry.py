"""The input of the layers of a described model: embeddings and rotary angles.

It drives the model's own modules.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from sie_text.architectures import Layers

from sie_pytorch.forward.checkpoint.positions import position_rule
from sie_pytorch.forward.lora.low_rank import applied, low_rank_part
from sie_pytorch.forward.protocol import Batch, LowRank

Angles = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines of every token's rotary angles, each `[total_tokens, turned]`; the halves are equal."""

PROJECT, INNER_PROJECT = "embeddings_project", "embed_proj"
"""The layer that widens narrow embeddings: of the model, or within its embeddings."""


@dataclass(frozen=True, slots=True)
class EmbeddingTables:
    """Embeddings that are a row of each table, added up in this order, and LayerNorm of the sum: all float32."""

    words: torch.Tensor
    """`[ids, hidden]`."""
    types: torch.Tensor | None
    """`[types, hidden]`; tokens without a type have the type 0."""
    positions: torch.Tensor
    """`[position ids, hidden]`; see `EncoderEntry.position_ids`."""
    _: KW_ONLY
    weight: torch.Tensor
    """`[hidden]`, of the norm."""
    bias: torch.Tensor
    """`[hidden]`, of the norm."""
    epsilon: float


class EncoderEntry:
    """Converts token ids to the states that the first layer takes."""

    def __init__(self, model: Any, row: Layers) -> None:
        """Take the modules of `model`, whose layers `row` describes.

        Raises:
            AttributeError: It has no embeddings, or no angles although the row names them.
        """
        self.embeddings = model.get_submodule(row.embeddings)
        self._project: Any = getattr(model, PROJECT, None)
        self._inner_project: Any = getattr(self.embeddings, INNER_PROJECT, None)
        self._inner_name = f"{row.embeddings}.{INNER_PROJECT}"
        self._tables = row.tables
        self._rotary: Any = None if row.rotary is None else _rotary_of(model)
        self.kinds = _kinds_of_layers(model, self._rotary)
        """The kinds of layers with separate rotary angles, in the order in which these are returned."""
        self.position_ids = position_rule(model)
        """Numbers the positions of tokens as the model does."""
        self._accepted = set(inspect.signature(self.embeddings.forward).parameters)

    def angles_of(self, kinds: Sequence[str]) -> list[int]:
        """Return each layer's kind of angles, as an index."""
        return [self.kinds.index((kind,)) if (kind,) in self.kinds else 0 for kind in kinds]

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """The linear layers before the first of the model's: out and in, by dotted name below the model."""
        layers = {PROJECT: self._project, self._inner_name: self._inner_project}
        return {name: (each.out_features, each.in_features) for name, each in layers.items() if each is not None}

    @property
    def projection(self) -> torch.nn.Linear | None:
        """The layer that projects narrow embeddings up; None if they are as wide as the states."""
        found: torch.nn.Linear | None = self._inner_project if self._project is None else self._project
        return found

    def tables(self) -> EmbeddingTables | None:
        """Return the embedding tables if they are everything before the first layer; None if there is more, or less
        precision than float32.

        The embeddings' own modules have to be those that the row of the model names, and no others.
        """
        named, modules = self._tables, dict(self.embeddings.named_children())
        if named is None or self.projection is not None or self._rotary is not None:
            return None
        parts = {name: each for name, each in modules.items() if not isinstance(each, torch.nn.Dropout)}
        norm = parts.pop(named.norm, None)
        tables = {name: each.weight.detach() for name, each in parts.items() if _is_plain_table(each)}
        wanted = {named.words, named.positions, *([] if named.types is None else [named.types])}
        if not tables.keys() == parts.keys() == wanted or type(norm) is not torch.nn.LayerNorm or norm.bias is None:
            return None
        types = None if named.types is None else tables[named.types]
        weight, bias = norm.weight.detach().float(), norm.bias.detach().float()
        return EmbeddingTables(
            tables[named.words], types, tables[named.positions], weight=weight, bias=bias, epsilon=norm.eps
        )

    def __call__(self, batch: Batch) -> tuple[torch.Tensor, list[Angles]]:
        """Embed the tokens of a batch: `[total_tokens, hidden]`, with the angles of each kind of layer."""
        ids, types = batch.ids[None], None if batch.types is None else batch.types[None]
        position_ids = self.position_ids(batch.ids, batch.positions)[None]
        offered = {"input": ids, "input_ids": ids, "position_ids": position_ids, "token_type_ids": types}
        given = {} if batch.low_rank is None else batch.low_rank.factors
        inner = given.get(self._inner_name)
        with applied(self.embeddings, None if inner is None else LowRank({INNER_PROJECT: inner})):
            states = self.embeddings(**{name: value for name, value in offered.items() if name in self._accepted})
        if self._project is not None:
            factors = given.get(PROJECT)
            added = 0 if factors is None else low_rank_part(states, factors)
            states = self._project(states) + added
        made = [self._rotary(states, position_ids, *kind) for kind in self.kinds]
        return states[0], [(cosine[0], sine[0]) for cosine, sine in made]


def _is_plain_table(module: torch.nn.Module) -> bool:
    return (
        type(module) is torch.nn.Embedding
        and module.max_norm is None
        and module.weight.dtype is torch.float32
        and module.weight.is_contiguous()
    )


def _rotary_of(model: Any) -> Any:
    """Find the source of the angles: a module, or RoFormer's table, one row per position, sines before cosines."""
    if hasattr(model, "rotary_emb"):
        return model.rotary_emb
    table = model.get_submodule("encoder.embed_positions")

    def look_up(states: torch.Tensor, position_ids: torch.Tensor) -> Angles:
        sine, cosine = F.embedding(position_ids, table.weight).to(states.dtype).chunk(2, dim=-1)
        return torch.cat((cosine, cosine), dim=-1), torch.cat((sine, sine), dim=-1)

    return look_up


def _kinds_of_layers(model: Any, rotary: Any) -> list[tuple[str, ...]]:
    """List the arguments of the rotary module for each kind of layer; empty if there is one kind."""
    if rotary is None:
        return []
    if "layer_type" not in inspect.signature(getattr(rotary, "forward", rotary)).parameters:
        return [()]
    return [(kind,) for kind in sorted(set(model.config.layer_types))]

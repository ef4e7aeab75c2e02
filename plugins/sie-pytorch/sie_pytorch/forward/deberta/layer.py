"""One layer of DeBERTa over packed sequences: its weights joined and prepacked, its position tables computed once.

The keys and queries of relative positions depend only on the weights (arXiv 2006.03654, section 3.1). transformers
computes them in every pass; here they are computed at load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from sie_text.architectures import DEBERTA

from sie_pytorch.forward.deberta.distances import by_distance
from sie_pytorch.forward.deberta.positions import RelativePositions
from sie_pytorch.forward.layout import Run
from sie_pytorch.forward.loop.linear import PackedLinear
from sie_pytorch.forward.lora.low_rank import low_rank_part
from sie_pytorch.forward.protocol import Factors, LowRank

QUERY, KEY, VALUE = DEBERTA.joined
ATTENTION_OUTPUT, (UP,), DOWN = DEBERTA.attention_output, DEBERTA.up, DEBERTA.down

LoraDelta = Callable[..., torch.Tensor | None]
"""Maps states and the names of the layers that they enter to the LoRA delta of the joined result, or None."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Keys and queries of relative positions, `[heads, head_dim, 2 * span]`, scaled as scores are."""

    keys: torch.Tensor
    """Positions fall."""
    queries: torch.Tensor
    """Positions rise."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.keys.nbytes + self.queries.nbytes


class DebertaLayer:
    """Attention and feed-forward part, each added to its input and normalised after."""

    def __init__(self, layer: Any, positions: RelativePositions, dtype: torch.dtype) -> None:
        """Take the weights of transformers' `layer`.

        Args:
            layer: A `DebertaV2Layer`.
            positions: The model's relative positions.
            dtype: Precision of the computation.
        """
        attention = layer.attention.self
        self._heads, self._width = attention.num_attention_heads, attention.attention_head_size
        self._scale = (3 * self._width) ** -0.5
        self._distances, self._positions, self._dtype = positions.distances, positions, dtype
        keys, queries = positions.projected(layer)
        self.tables = Tables(self._by_head(keys.flip(0)), self._by_head(queries))
        self._joined = PackedLinear([layer.get_submodule(name) for name in (QUERY, KEY, VALUE)], dtype)
        self._attention_output = PackedLinear([layer.get_submodule(ATTENTION_OUTPUT)], dtype)
        self._attention_norm = layer.attention.output.LayerNorm
        activation = layer.attention.config.hidden_act
        self._up = PackedLinear([layer.get_submodule(UP)], dtype, activation)
        self._down = PackedLinear([layer.get_submodule(DOWN)], dtype)
        self._output_norm = layer.output.LayerNorm

    def tables_with(self, low_rank: LowRank, path: str) -> Tables:
        """Make the tables of a LoRA adapter; `path` stands before the names of this layer's parts."""
        keys, queries = (low_rank.factors.get(f"{path}.{name}") for name in self._positions.names)
        positions = self._positions.embeddings
        return Tables(
            self._with(self.tables.keys, keys, positions.flip(0)), self._with(self.tables.queries, queries, positions)
        )

    def __call__(self, states: torch.Tensor, runs: Sequence[Run], tables: Tables, lora: LoraDelta) -> torch.Tensor:
        """Run `[rows, hidden]`; rows after the last run are computed too, and never read."""
        joined = self._joined(states, lora(states, QUERY, KEY, VALUE)).view(len(states), 3, self._heads, self._width)
        attended = states.new_zeros(len(states), self._heads * self._width)
        for run in runs:
            tokens = slice(run.start, run.stop)
            self._attend(joined[tokens], run, tables, attended[tokens])
        states = self._attention_norm(self._attention_output.add(attended, states, lora(attended, ATTENTION_OUTPUT)))
        inner = self._up(states, lora(states, UP))
        result: torch.Tensor = self._output_norm(self._down.add(inner, states, lora(inner, DOWN)))
        return result

    def _attend(self, joined: torch.Tensor, run: Run, tables: Tables, attended: torch.Tensor) -> None:
        """Attend within the sequences of a run: content to content, content to position, position to content."""
        queries, keys = joined[:, 0].transpose(0, 1), joined[:, 1].transpose(0, 1)
        to_position = queries @ self._distances.falling(tables.keys, run.length)
        to_content = keys @ self._distances.rising(tables.queries, run.length)
        scores = by_distance(to_position, to_content, run.count, run.length)
        shape = (run.count, run.length, 3, self._heads, self._width)
        query, key, value = joined.view(shape).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=scores, scale=self._scale)
        attended.view(run.count, run.length, self._heads, self._width).copy_(found.transpose(1, 2))

    def _with(self, table: torch.Tensor, factors: Factors | None, positions: torch.Tensor) -> torch.Tensor:
        return table if factors is None else table + self._by_head(low_rank_part(positions, factors))

    def _by_head(self, rows: torch.Tensor) -> torch.Tensor:
        table = rows.view(len(rows), self._heads, self._width).permute(1, 2, 0).contiguous()
        scaled: torch.Tensor = table * self._scale
        return scaled.to(self._dtype)

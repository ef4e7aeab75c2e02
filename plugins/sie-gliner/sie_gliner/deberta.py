"""DeBERTa's layers over sequences that are concatenated, not padded, in place of transformers' own forward pass.

What transformers computes anew for every layer of every pass depends on the weights alone: the keys and queries of
relative positions (arXiv 2006.03654, section 3.1). They are made once, and a sequence is multiplied with those of the
distances it has. It knows transformers' modules and tensors, no gliner.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Model

from sie_gliner.distances import Distances, by_distance
from sie_gliner.linear import linear, padded


class UnfitError(Exception):
    """An encoder is not what is computed here; the message says why."""


@dataclass(frozen=True, slots=True)
class Run:
    """`count` adjacent sequences of `length` tokens, the first token of which is number `start`."""

    start: int
    count: int
    length: int

    @property
    def tokens(self) -> slice:
        """Its tokens among those of the pass."""
        return slice(self.start, self.start + self.count * self.length)


class PackedDeberta(nn.Module):
    """Stands where a `DebertaV2Model` stood.

    Until `take` the model keeps its layers: each is packed for its turn alone, so that no more than one is there twice.
    """

    def __init__(self, model: nn.Module) -> None:
        """Look at the parts of `model`.

        Raises:
            UnfitError: It is of another kind.
        """
        super().__init__()
        encoder = _fitting(model).encoder
        self.config = model.config
        self.embeddings: Any = model.embeddings
        self._positions = encoder.get_rel_embedding()
        half = len(self._positions) // 2
        self._distances = Distances(half, encoder.position_buckets, encoder.max_relative_positions)
        # In lists they are no parts of this module: they stay the model's.
        self._unpacked = list(encoder.layer)
        self._layers: list[_Layer] = []

    def take(self, model: Any) -> None:
        """Pack the layers of `model` for good, and have it let go of its own one after the other; it runs no more."""
        for number in range(len(self._unpacked)):
            self._layers.append(self._packed(self._unpacked.pop(0)))
            model.encoder.layer[number] = nn.Identity()
        del self._positions

    def _layer(self, number: int) -> _Layer:
        return self._layers[number] if self._layers else self._packed(self._unpacked[number])

    def _packed(self, layer: nn.Module) -> _Layer:
        return _Layer(layer, self._positions, self._distances)

    @property
    def added_bytes(self) -> int:
        """What it keeps beyond the weights."""
        return sum(layer.table_bytes for layer in self._layers)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> BaseModelOutput:
        """Compute the last states of `[sequences, length]` ids; those of padding, which ends a row, are zero."""
        kept = attention_mask.bool()
        runs = _runs(kept.sum(dim=1).tolist())
        ids = input_ids[kept][None]
        places = torch.arange(kept.shape[1], device=kept.device).expand(kept.shape)[kept][None]
        states = padded(self.embeddings(input_ids=ids, position_ids=places)[0])
        for number in range(len(self._layers) or len(self._unpacked)):
            states = self._layer(number)(states, runs)
        found = states.new_zeros(*kept.shape, states.shape[1])
        found[kept] = states[: ids.shape[1]]
        return BaseModelOutput(last_hidden_state=found)


class _Layer:
    """One layer: attention and feed-forward part, each added to its input and normalised after."""

    def __init__(self, layer: Any, positions: torch.Tensor, distances: Distances) -> None:
        attention = layer.attention.self
        self._heads, self._width = attention.num_attention_heads, attention.attention_head_size
        self._scale = (3 * self._width) ** -0.5
        self._distances = distances
        own = attention.share_att_key
        keys = (attention.key_proj if own else attention.pos_key_proj)(positions)
        queries = (attention.query_proj if own else attention.pos_query_proj)(positions)
        self._position_keys = self._by_head(keys.flip(0))
        self._position_queries = self._by_head(queries)
        parts = (attention.query_proj, attention.key_proj, attention.value_proj)
        self._joined = linear(torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))
        output, up, down = layer.attention.output, layer.intermediate.dense, layer.output
        self._attention_output = linear(output.dense.weight, output.dense.bias)
        self._attention_norm = output.LayerNorm
        self._up = linear(up.weight, up.bias, "gelu")
        self._down = linear(down.dense.weight, down.dense.bias)
        self._output_norm = down.LayerNorm

    @property
    def table_bytes(self) -> int:
        """What the keys and queries of positions take."""
        return self._position_keys.nbytes + self._position_queries.nbytes

    def __call__(self, states: torch.Tensor, runs: list[Run]) -> torch.Tensor:
        """Run `[rows, hidden]`; what comes after the last run is computed along, and unread."""
        joined = self._joined(states).view(len(states), 3, self._heads, self._width)
        attended = states.new_zeros(len(states), self._heads * self._width)
        for run in runs:
            self._attend(joined[run.tokens], run, attended[run.tokens])
        states = self._attention_norm(self._attention_output(attended, states))
        found: torch.Tensor = self._output_norm(self._down(self._up(states), states))
        return found

    def _attend(self, joined: torch.Tensor, run: Run, attended: torch.Tensor) -> None:
        """Attend within the sequences of a run: content to content, content to position, position to content."""
        queries, keys = joined[:, 0].transpose(0, 1), joined[:, 1].transpose(0, 1)
        to_position = queries @ self._distances.falling(self._position_keys, run.length)
        to_content = keys @ self._distances.rising(self._position_queries, run.length)
        scores = by_distance(to_position, to_content, run.count, run.length)
        shape = (run.count, run.length, 3, self._heads, self._width)
        query, key, value = joined.view(shape).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=scores, scale=self._scale)
        attended.view(run.count, run.length, self._heads, self._width).copy_(found.transpose(1, 2))

    def _by_head(self, rows: torch.Tensor) -> torch.Tensor:
        """Turn `[positions, hidden]` to `[heads, width, positions]`, scaled as scores are."""
        table = rows.detach().view(len(rows), self._heads, self._width).permute(1, 2, 0).contiguous()
        scaled: torch.Tensor = table * self._scale
        return scaled


def _runs(lengths: list[int]) -> list[Run]:
    runs, start = [], 0
    for length, equal in groupby(lengths):
        runs.append(Run(start, len(list(equal)), length))
        start = runs[-1].tokens.stop
    return runs


def _fitting(model: Any) -> Any:
    if type(model) is not DebertaV2Model:
        raise UnfitError(f"a {type(model).__name__} is no DeBERTa")
    config = model.config
    if not config.relative_attention or {*config.pos_att_type} != {"c2p", "p2c"}:
        raise UnfitError("its attention does not look at relative positions both ways")
    if model.encoder.conv is not None:
        raise UnfitError("it has a convolution")
    if config.hidden_act != "gelu":
        raise UnfitError(f"its activation is {config.hidden_act}")
    return model

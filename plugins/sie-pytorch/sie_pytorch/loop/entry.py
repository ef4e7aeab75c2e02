"""What comes before the layers of an encoder that a table describes: its row, its embeddings, its rotary angles.

It drives the model's own modules and knows no architecture by name. Runners outside sie-pytorch may use it.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from sie_pytorch.loop.table import ROWS, LayerRow
from sie_pytorch.runners.positions import position_rule
from sie_pytorch.runners.protocol import RunnerUnfitError

Angles = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines of every token's rotary angles, each `[total_tokens, head_dim]`."""


def row_of(config: Any) -> LayerRow:
    """Find the row that describes the layers of a model.

    Raises:
        RunnerUnfitError: The table has none, or the model is configured as a decoder.
    """
    row = ROWS.get(config.model_type)
    if row is None:
        raise RunnerUnfitError(f"the table has no row for {config.model_type}")
    if getattr(config, "is_decoder", False):
        raise RunnerUnfitError("it is configured as a decoder")
    return row


def activation_of(config: Any) -> str:
    """Give transformers' name of the activation between the products of the feed-forward part."""
    return str(getattr(config, "hidden_act", None) or getattr(config, "activation", None))


def linear_shapes(model: Any, row: LayerRow) -> dict[str, tuple[int, int]]:
    """List the linear layers of the row in every layer: out and in, by dotted name below the model."""
    parts = (row.query, row.key, row.value, row.attention_output, row.up, row.down, row.gate)
    shapes = {}
    for number, layer in enumerate(model.get_submodule(row.layers)):
        for part in filter(None, parts):
            weight = layer.get_submodule(part).weight
            shapes[f"{row.layers}.{number}.{part}"] = (weight.shape[0], weight.shape[1])
    return shapes


class EncoderEntry:
    """From token ids to the states that the first layer takes."""

    def __init__(self, model: Any) -> None:
        """Take the modules of `model`.

        Raises:
            AttributeError: It has no embeddings.
        """
        self.embeddings = model.get_submodule("embeddings")
        self._project: Any = getattr(model, "embeddings_project", None)
        self._rotary: Any = getattr(model, "rotary_emb", None)
        self._positions = position_rule(model)
        self._accepted = set(inspect.signature(self.embeddings.forward).parameters)

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, segment_ids: torch.Tensor | None
    ) -> tuple[torch.Tensor, Angles | None]:
        """Embed `[total_tokens]` ids: `[total_tokens, hidden]`, with the angles where positions are rotary."""
        position_ids = self._positions(ids, positions)[None]
        segments = None if segment_ids is None else segment_ids[None]
        offered = {"input_ids": ids[None], "position_ids": position_ids, "token_type_ids": segments}
        states = self.embeddings(**{name: value for name, value in offered.items() if name in self._accepted})
        if self._project is not None:
            states = self._project(states)
        if self._rotary is None:
            return states[0], None
        cosine, sine = self._rotary(states, position_ids)
        return states[0], (cosine[0], sine[0])

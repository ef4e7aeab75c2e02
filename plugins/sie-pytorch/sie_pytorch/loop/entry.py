"""What comes before the layers of an encoder that a table describes: its row, its embeddings, its rotary angles.

It drives the model's own modules and knows no architecture by name. Runners outside sie-pytorch may use it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch

from sie_pytorch.runners.low_rank import low_rank_part
from sie_pytorch.runners.positions import position_rule
from sie_pytorch.runners.protocol import LowRank, RunnerUnfitError

Angles = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines of every token's rotary angles, each `[total_tokens, head_dim]`."""


PROJECT = "embeddings_project"
"""Where a model of narrow embeddings has the layer that widens them."""

Row = TypeVar("Row")


def row_of(config: Any, rows: Mapping[str, Row]) -> Row:
    """Find the row of a table that describes the layers of a model.

    Raises:
        RunnerUnfitError: The table has none, or the model is configured as a decoder.
    """
    row = rows.get(config.model_type)
    if row is None:
        raise RunnerUnfitError(f"the table has no row for {config.model_type}")
    if getattr(config, "is_decoder", False):
        raise RunnerUnfitError("it is configured as a decoder")
    return row


def activation_of(config: Any) -> str:
    """Give transformers' name of the activation between the products of the feed-forward part."""
    names = ("hidden_act", "activation", "hidden_activation")
    return str(next((found for name in names if (found := getattr(config, name, None))), None))


def linear_shapes(model: Any, layers: str, parts: Sequence[str]) -> dict[str, tuple[int, int]]:
    """List the linear layers `parts` of every layer: out and in, by dotted name below the model."""
    shapes = {}
    for number, layer in enumerate(model.get_submodule(layers)):
        for part in parts:
            weight = layer.get_submodule(part).weight
            shapes[f"{layers}.{number}.{part}"] = (weight.shape[0], weight.shape[1])
    return shapes


class EncoderEntry:
    """From token ids to the states that the first layer takes."""

    def __init__(self, model: Any) -> None:
        """Take the modules of `model`.

        Raises:
            AttributeError: It has no embeddings.
        """
        self.embeddings = model.get_submodule("embeddings")
        self._project: Any = getattr(model, PROJECT, None)
        self._rotary: Any = getattr(model, "rotary_emb", None)
        self.kinds = _kinds_of_layers(model, self._rotary)
        """The kinds of layers that have rotary angles of their own, in the order these are returned in."""
        self._positions = position_rule(model)
        self._accepted = set(inspect.signature(self.embeddings.forward).parameters)

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """The linear layers before the first of the model's: out and in, by dotted name below the model."""
        return {} if self._project is None else {PROJECT: (self._project.out_features, self._project.in_features)}

    def __call__(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        low_rank: LowRank | None = None,
    ) -> tuple[torch.Tensor, list[Angles]]:
        """Embed `[total_tokens]` ids: `[total_tokens, hidden]`, with the angles of each kind of layer."""
        position_ids = self._positions(ids, positions)[None]
        segments = None if segment_ids is None else segment_ids[None]
        offered = {"input_ids": ids[None], "position_ids": position_ids, "token_type_ids": segments}
        states = self.embeddings(**{name: value for name, value in offered.items() if name in self._accepted})
        if self._project is not None:
            factors = None if low_rank is None else low_rank.factors.get(PROJECT)
            added = 0 if factors is None else low_rank_part(states, factors)
            states = self._project(states) + added
        made = [self._rotary(states, position_ids, *kind) for kind in self.kinds]
        return states[0], [(cosine[0], sine[0]) for cosine, sine in made]


def _kinds_of_layers(model: Any, rotary: Any) -> list[tuple[str, ...]]:
    """List what the rotary module is called with for each kind of layer: nothing, where there is one kind."""
    if rotary is None:
        return []
    if "layer_type" not in inspect.signature(rotary.forward).parameters:
        return [()]
    return [(kind,) for kind in sorted(set(model.config.layer_types))]

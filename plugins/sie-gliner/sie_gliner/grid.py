"""Scores every span of a row from what its two ends bring, without a representation of the span.

gliner projects both ends of a span, joined, by an MLP, and multiplies what comes out with each label. The MLP's first
layer is a sum of one product for the first word and one for the last, so a word is multiplied once for all its spans;
its last layer is multiplied with the labels, which are few. It knows gliner's modules, no row.
"""

from __future__ import annotations

from typing import Any

import torch
from gliner.modeling.base import BiEncoderSpanModel, UniEncoderSpanModel
from gliner.modeling.context_encoders import IdentityContextEncoder
from gliner.modeling.span_rep import SpanMarkerV0, SpanMarkerV1, SpanMarkerV2
from torch import nn
from torch.nn import functional

from sie_gliner.linear import Linear, linear, padded

MODELS = (UniEncoderSpanModel, BiEncoderSpanModel)
MLP = (nn.Linear, nn.ReLU, nn.Dropout, nn.Linear)
SPANS = ("span_idx", "span_mask")
LOOK_AROUND = (SpanMarkerV1, SpanMarkerV2)
"""Representations of spans that take in the mean of all words, or the last."""


def scores_ends(model: nn.Module) -> bool:
    """Whether a model scores spans in exactly the way that `EndScorer` does."""
    if type(model) not in MODELS:
        return False
    layer: Any = model.span_rep_layer
    marker = layer.span_rep_layer
    if type(layer.context_encoder) is not IdentityContextEncoder or type(marker) is not SpanMarkerV0:
        return False
    parts = (marker.project_start, marker.project_end, marker.out_project)
    return all(tuple(type(each) for each in part) == MLP for part in parts)


def sees_padding(model: nn.Module) -> bool:
    """Whether what stands for a span takes in words beyond it, and with them those a batch is padded with.

    gliner tells these layers of no padding: the mean of all words and the last one are those of the padded row.
    """
    layer: Any = getattr(model, "span_rep_layer", None)
    if layer is None:
        return False
    return type(layer.context_encoder) is not IdentityContextEncoder or type(layer.span_rep_layer) in LOOK_AROUND


class EndScorer:
    """A model of which `scores_ends` holds, on its device."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._widths = model.config.max_width
        marker = model.span_rep_layer.span_rep_layer
        joined, last = marker.out_project[0], marker.out_project[3]
        of_first, of_last = joined.weight.chunk(2, dim=1)
        self._firsts = (*_mlp(marker.project_start), linear(of_first, joined.bias))
        self._lasts = (*_mlp(marker.project_end), linear(of_last, None))
        self._weight, self._bias = last.weight, last.bias

    def __call__(self, arguments: dict[str, Any]) -> torch.Tensor:
        """Return logits of shape (rows, words, widths, classes); those of spans beyond the text mean nothing."""
        model, widths = self._model, self._widths
        states = model.get_representations(**{name: value for name, value in arguments.items() if name not in SPANS})
        words, _ = model._fit_length(states.words_embedding, states.mask, arguments["span_idx"].size(1) // widths)
        labels = model.prompt_rep_layer(states.prompts_embedding)
        firsts, lasts = self._ends(words)
        lasts = functional.pad(lasts, (0, 0, 0, widths - 1))
        weight, bias = (labels @ self._weight).transpose(1, 2), (labels @ self._bias).unsqueeze(1)
        length = words.size(1)
        grid = [
            torch.baddbmm(bias, (firsts + lasts[:, width : width + length]).relu_(), weight) for width in range(widths)
        ]
        return torch.stack(grid, dim=2)

    def _ends(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Project every word as the first of its spans, and as the last."""
        rows, length, hidden = words.shape
        flat = padded(words.reshape(rows * length, hidden))
        found = []
        for widen, narrow, join in (self._firsts, self._lasts):
            found.append(join(narrow(widen(flat)))[: rows * length].view(rows, length, -1))
        return found[0], found[1]


def _mlp(layers: Any) -> tuple[Linear, Linear]:
    """Take an MLP apart; what it gives is activated too before the ends are joined."""
    return linear(layers[0].weight, layers[0].bias, "relu"), linear(layers[3].weight, layers[3].bias, "relu")

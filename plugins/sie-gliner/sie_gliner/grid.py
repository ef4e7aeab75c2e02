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
from gliner.modeling.span_rep import SpanMarkerV0
from torch import nn
from torch.nn import functional

MODELS = (UniEncoderSpanModel, BiEncoderSpanModel)
MLP = (nn.Linear, nn.ReLU, nn.Dropout, nn.Linear)
SPANS = ("span_idx", "span_mask")


def scores_ends(model: nn.Module) -> bool:
    """Whether a model scores spans in exactly the way that `grid_logits` does."""
    if type(model) not in MODELS:
        return False
    layer: Any = model.span_rep_layer
    marker = layer.span_rep_layer
    return (
        type(layer.context_encoder) is IdentityContextEncoder
        and type(marker) is SpanMarkerV0
        and tuple(type(each) for each in marker.out_project) == MLP
    )


def grid_logits(model: Any, arguments: dict[str, Any]) -> torch.Tensor:
    """Run a model of which `scores_ends` holds; return logits of shape (rows, words, widths, classes).

    Those of spans that go beyond the text mean nothing.
    """
    states = model.get_representations(**{name: value for name, value in arguments.items() if name not in SPANS})
    widths = model.config.max_width
    words, _ = model._fit_length(states.words_embedding, states.mask, arguments["span_idx"].size(1) // widths)
    labels = model.prompt_rep_layer(states.prompts_embedding)
    marker = model.span_rep_layer.span_rep_layer
    joined, last = marker.out_project[0], marker.out_project[3]
    of_first, of_last = joined.weight.chunk(2, dim=1)
    firsts = functional.linear(marker.project_start(words).relu(), of_first, joined.bias)
    lasts = functional.linear(marker.project_end(words).relu(), of_last)
    lasts = functional.pad(lasts, (0, 0, 0, widths - 1))
    weight, bias = (labels @ last.weight).transpose(1, 2), (labels @ last.bias).unsqueeze(1)
    length = words.size(1)
    grid = [torch.baddbmm(bias, (firsts + lasts[:, width : width + length]).relu_(), weight) for width in range(widths)]
    return torch.stack(grid, dim=2)

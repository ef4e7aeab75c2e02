"""One forward pass of gliner's model over rows: tensors in, probabilities on their way to the host out.

It knows tensors and the shapes of gliner's results, no text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from sie_gliner.batches import Layout, OnHost, tensors, to_host
from sie_gliner.grid import EndScorer, scores_ends, sees_padding
from sie_gliner.rows import Row

NOTHING = 2.0
"""A threshold that no span is above: no pair of entities is looked at."""


class Forward:
    """A model on its device; `relations` says whether it finds them.

    Attributes:
        alike: Whether the rows of a pass must have equally many words.
    """

    def __init__(self, model: nn.Module, layout: Layout, device: torch.device, relations: bool) -> None:
        self.model = model
        self.layout = layout
        self.device = device
        self._relations = relations
        self.alike = sees_padding(model)
        self.ends = EndScorer(model) if scores_ends(model) else None

    def release(self) -> None:
        """Let go of weights that are kept in another layout."""
        if self.ends is not None:
            del self.model.span_rep_layer

    def __call__(self, rows: Sequence[Row]) -> OnHost:
        """Run rows of equal key."""
        with torch.inference_mode():
            arguments = tensors(rows, self.layout, self.device)
            if self.ends is not None:
                return to_host([("grid", torch.sigmoid(self.ends(arguments).float()))])
            asked = bool(rows[0].choice.relation_labels)
            output = self.model(**arguments, **self._thresholds(rows, asked))
            return to_host(self._results(output, asked))

    def _thresholds(self, rows: Sequence[Row], asked: bool) -> dict[str, Any]:
        """Give what the model selects spans by, before anything is read from them."""
        if self._relations:
            threshold = rows[0].choice.threshold if asked else NOTHING
            return {"threshold": threshold, "adjacency_threshold": threshold}
        if self.layout.widths is None:
            own = torch.tensor([row.choice.threshold for row in rows], device=self.device)
            return {"threshold": own.view(-1, 1, 1)}
        return {}

    def _results(self, output: Any, asked: bool) -> Iterator[tuple[str, torch.Tensor]]:
        yield "grid" if self.layout.widths is not None else "words", torch.sigmoid(output.logits.float())
        if getattr(output, "span_logits", None) is not None:
            yield "spans", torch.sigmoid(output.span_logits.float())
            yield "span_ends", output.span_idx
            yield "span_mask", output.span_mask
        if asked:
            yield "relations", torch.sigmoid(output.rel_logits.float())
            yield "pairs", output.rel_idx
            yield "pair_mask", output.rel_mask
            yield "members", output.entity_spans

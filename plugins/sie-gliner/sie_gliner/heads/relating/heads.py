"""Maps the entities of texts to logits of relations between them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from sie_core.contracts import ModelLoadError
from sie_gliner.checkpoint.bases import CONFIG_FILE
from sie_gliner.checkpoint.config import GlinerConfig
from sie_gliner.heads.gathering import Table
from sie_gliner.heads.layers import mlp
from sie_gliner.heads.relating.adjacency import ADJACENCIES
from sie_gliner.heads.relating.triples import TRIPLES

ALL_PAIRS = "none"
"""The `relations_layer` of checkpoints that score every pair."""


class RelationHeads(nn.Module):
    """The modules that pair entities up and score pairs, named as in a checkpoint."""

    def __init__(self, config: GlinerConfig) -> None:
        """Make the modules, to be filled.

        Raises:
            ModelLoadError: `CONFIG`: a part is of a kind that is not known.
        """
        super().__init__()
        size, pairs_up, scores = config.hidden_size, str(config.relations_layer), config.triples_layer
        self.relations_rep_layer = self.triples_score_layer = self.pair_rep_layer = None
        if pairs_up != ALL_PAIRS:
            made = _known("relations_layer", pairs_up.lower(), ADJACENCIES)(size)
            self.relations_rep_layer = nn.ModuleDict({"relation_rep_layer": made})
        if scores is None:
            self.pair_rep_layer = mlp(2 * size, size)
        else:
            self.triples_score_layer = nn.ModuleDict({"interaction": _known("triples_layer", scores, TRIPLES)(size)})

    def forward(
        self, spans: torch.Tensor, vectors: torch.Tensor, labels: Table, threshold: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Score the pairs of entities of each row.

        Args:
            spans: int64 `[entities, 3]`: row, first word, last word; ordered by row.
            vectors: `[entities, size]`, their representations.
            labels: Relation labels of each row.
            threshold: How near two must be to be scored.

        Returns:
            int64 `[pairs, 5]`: row, and first and last word of the head and of the tail; and
            `[pairs, most labels]`, the logits.
        """
        rows = len(labels.states)
        counts = torch.bincount(spans[:, 0], minlength=rows)
        begins = counts.cumsum(0) - counts
        places = torch.arange(len(spans), device=spans.device) - begins[spans[:, 0]]
        most = max(1, int(counts.max()))
        entities = vectors.new_zeros(rows, most, vectors.shape[1])
        entities[spans[:, 0], places] = vectors
        are_there = torch.arange(most, device=spans.device) < counts[:, None]
        pairs = self._pairs(entities, are_there, threshold)
        row, head, tail = pairs.unbind(1)
        heads, tails = begins[row] + head, begins[row] + tail
        logits = self._logits(vectors[heads], vectors[tails], labels, row)
        return torch.cat((row[:, None], spans[heads, 1:], spans[tails, 1:]), dim=1), logits

    def _pairs(self, entities: torch.Tensor, are_there: torch.Tensor, threshold: float) -> torch.Tensor:
        """List row, head and tail of the pairs to score, by their indices in the row."""
        both = (
            are_there[:, :, None]
            & are_there[:, None]
            & ~torch.eye(entities.shape[1], dtype=torch.bool, device=entities.device)
        )
        if self.relations_rep_layer is not None:
            both &= self.relations_rep_layer["relation_rep_layer"](entities, are_there) > threshold
        return both.nonzero()

    def _logits(self, heads: torch.Tensor, tails: torch.Tensor, labels: Table, rows: torch.Tensor) -> torch.Tensor:
        """Score pairs for the labels of their `rows`, which ascend: `[pairs, most labels]`."""
        if self.pair_rep_layer is not None:
            return labels.products(self.pair_rep_layer(torch.cat((heads, tails), dim=-1)), rows)
        assert self.triples_score_layer is not None
        score = self.triples_score_layer["interaction"]
        counts = torch.bincount(rows, minlength=len(labels.states)).tolist()
        parts = zip(torch.split(heads, counts), labels.states, torch.split(tails, counts), strict=True)
        scored = [score(*part) for part, count in zip(parts, counts, strict=True) if count]
        return torch.cat(scored) if scored else heads.new_empty(0, labels.states.shape[1])


def _known(field: str, name: str, kinds: dict[str, Callable[[int], nn.Module]]) -> Callable[[int], nn.Module]:
    if name not in kinds:
        known = ", ".join(sorted(kinds))
        raise ModelLoadError("CONFIG", f"{CONFIG_FILE}: {field} is {name!r}, and must be one of {known}.")
    return kinds[name]

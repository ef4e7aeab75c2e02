"""One forward pass over rows: token ids in, probabilities on their way to the host out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from sie_pytorch.forward import HostCopy, Transfers
from sie_text.tokenizer import Ids

from sie_gliner.checkpoint.config import Pooling
from sie_gliner.encoders import Encoders, encode
from sie_gliner.heads.entities import EntityHeads
from sie_gliner.heads.gathering import Slots, Table, listed_slots, word_slots
from sie_gliner.heads.relating.heads import RelationHeads
from sie_gliner.heads.words import found_spans
from sie_gliner.text.rows import Row

Results = Mapping[str, HostCopy]


def distinct_labels(rows: Sequence[Row]) -> dict[bytes, Ids]:
    """List the ids of each distinct label of rows, if labels have an encoder."""
    return {ids.tobytes(): ids for row in rows for ids in row.prompt.rows}


@dataclass(frozen=True, slots=True)
class Encoded:
    """The states of the tokens of some rows, and their places."""

    rows: Sequence[Row]
    states: torch.Tensor
    """`[tokens, hidden]`, of all rows."""
    firsts: Ids
    """Index of the first token of each row."""
    labels: torch.Tensor | None
    """`[labels, size]` if labels have an encoder: each distinct one once."""
    asked: Sequence[Ids]
    """The labels that each row is searched for."""


class Forward:
    """The encoders and heads of a checkpoint, on their device."""

    def __init__(
        self,
        encoders: Encoders,
        heads: EntityHeads,
        relations: RelationHeads | None,
        pooling: Pooling,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Keep the parts.

        Args:
            encoders: Map tokens to states.
            heads: Map states to entities.
            relations: Map entities to relations; None if the checkpoint finds none.
            pooling: Which tokens of a word represent it.
            device: The device of all parts.
            dtype: Precision of the heads.
        """
        self.encoders = encoders
        self.heads = heads
        self.relations = relations
        self.device = device
        self._pooling = pooling
        self._dtype = dtype
        self._transfers = Transfers(device)

    @torch.inference_mode()
    def encode(self, rows: Sequence[Row]) -> Encoded:
        """Compute the states of rows, and of their labels if these have an encoder."""
        states, firsts = encode(self.encoders.texts, [row.ids for row in rows], self._transfers)
        if self.encoders.labels is None:
            return Encoded(rows, states, firsts, None, ())
        distinct = distinct_labels(rows)
        numbers = {each: number for number, each in enumerate(distinct)}
        asked = [np.array([numbers[ids.tobytes()] for ids in row.prompt.rows], dtype=np.int64) for row in rows]
        labels, begins = encode(self.encoders.labels, list(distinct.values()), self._transfers)
        labels = self.heads.project(labels.to(self._dtype), "labels_projection")
        lengths = np.diff(np.append(begins, len(labels)))
        (places,) = self._transfers.upload([np.repeat(np.arange(len(lengths)), lengths)])
        slots = Slots(np.arange(len(labels)), np.repeat(np.arange(len(lengths)), lengths), (len(lengths),))
        return Encoded(rows, states, firsts, Table.of(labels, slots, places, "mean").states[0], asked)

    @torch.inference_mode()
    def answer(self, encoded: Encoded, places: Sequence[int]) -> Results:
        """Compute the probabilities of the rows at `places`, which share one key; see `answers.reading`."""
        found = self.logits(encoded, places)
        return {
            name: self._transfers.download(torch.sigmoid(each.float()) if each.is_floating_point() else each)
            for name, each in found.items()
        }

    @torch.inference_mode()
    def logits(self, encoded: Encoded, places: Sequence[int]) -> dict[str, torch.Tensor]:
        """Score the rows at `places`, which share one key."""
        rows = [encoded.rows[place] for place in places]
        words, labels, related = self._tables(encoded, rows, places)
        return dict(self._scored(rows, *self.heads.represent(words, labels), related))

    def run(self, rows: Sequence[Row]) -> None:
        """Run rows to the end."""
        for each in self.answer(self.encode(rows), range(len(rows))).values():
            each.wait()

    def entity_logits(self, rows: Sequence[Row]) -> torch.Tensor:
        """Return the logits of the entities of rows, `[logits]` in float32: of every span, or word, for every label."""
        encoded = self.encode(rows)
        # Row by row, because logits of all rows together would include padding.
        first = (next(iter(self.logits(encoded, [place]).values())) for place in range(len(rows)))
        return torch.cat([each.flatten().float() for each in first])

    def _tables(self, encoded: Encoded, rows: Sequence[Row], places: Sequence[int]) -> tuple[Table, Table, Table]:
        """Lay out the states of words, labels and relation labels."""
        firsts = [int(encoded.firsts[place]) for place in places]
        begins = [first + row.prompt_begins for first, row in zip(firsts, rows, strict=True)]
        related = listed_slots([row.prompt.relations + begin for row, begin in zip(rows, begins, strict=True)])
        if encoded.labels is None:
            labels = listed_slots([row.prompt.labels + begin for row, begin in zip(rows, begins, strict=True)])
        else:
            labels = listed_slots([encoded.asked[place] for place in places])
        words = word_slots(rows, firsts)
        arrays = chain.from_iterable((each.states, each.slots) for each in (words, labels, related))
        at = self._transfers.upload(list(arrays))
        states = [encoded.states[at[0]], encoded.states[at[4]]]
        if encoded.labels is None:
            states.insert(1, encoded.states[at[2]])
        together = self.heads.project(torch.cat(states).to(self._dtype))
        projected = list(torch.split(together, [len(each) for each in states]))
        if encoded.labels is not None:
            projected.insert(1, encoded.labels[at[2]])
        return (
            Table.of(projected[0], words, at[1], self._pooling),
            Table.of(projected[1], labels, at[3]),
            Table.of(projected[2], related, at[5]),
        )

    def _scored(
        self, rows: Sequence[Row], words: Table, labels: Table, related: Table
    ) -> Iterator[tuple[str, torch.Tensor]]:
        heads, layer = self.heads, self.heads.span_rep_layer
        asks = self.relations is not None and bool(rows[0].choice.relation_labels)
        if heads.scorer is None:
            assert layer is not None
            words = layer.contextual(words)
            grid = layer.logits(words, labels.states)
            yield "grid", grid
            if not asks:
                return
            spans = _above(torch.sigmoid(grid.float()), words, labels, rows[0].choice.threshold)
        else:
            logits = heads.scorer(words.states, labels.states)
            yield "words", logits
            if layer is None or not (asks or self.relations is None):
                return
            spans = _found(torch.sigmoid(logits.float()), rows)
            words = layer.contextual(words)
        vectors = layer.vectors(words, spans)
        if self.relations is None:
            yield "spans", labels.products(vectors, spans[:, 0])
            yield "span_ends", spans
        else:
            pairs, scores = self.relations(spans, vectors, related, rows[0].choice.threshold)
            yield "relations", scores
            yield "pairs", pairs


def _found(probabilities: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
    """List the spans that words make: row, first and last word."""
    words, labels = [row.words for row in rows], [len(row.labels) for row in rows]
    return found_spans(probabilities, words, labels, [row.choice.threshold for row in rows])


def _above(probabilities: torch.Tensor, words: Table, labels: Table, threshold: float) -> torch.Tensor:
    """List the spans of a grid that are above a threshold for a label: row, first and last word."""
    widths = torch.arange(probabilities.shape[2], device=probabilities.device)
    lasts = torch.arange(probabilities.shape[1], device=probabilities.device)[:, None] + widths
    inside = lasts < words.lengths[:, None, None]
    above = (probabilities > threshold) & labels.are_there[:, None, None]
    row, first, width = (above.any(dim=-1) & inside).nonzero(as_tuple=True)
    return torch.stack((row, first, first + width), dim=1)

"""Inputs for judging half precision: rows of a first run, and their logits in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from sie_pytorch.forward import Batch, RunnerInfo
from sie_text.sequences import PackedBatch, TokenSequence
from sie_text.tokenizer import Ids

from sie_core.contracts import LoadContext
from sie_gliner.checkpoint.config import GlinerConfig
from sie_gliner.encoders import Encoder, Encoders
from sie_gliner.forward import distinct_labels
from sie_gliner.text.making import judged_rows, make_rows
from sie_gliner.text.rows import Row, RowMaker
from sie_gliner.text.tokens import Tokens


class FirstRun:
    """The rows, and the encoders' states for them in float32."""

    def __init__(self, context: LoadContext, config: GlinerConfig, tokens: Tokens) -> None:
        self._made = _Rows(partial(make_rows, context, config, tokens), context)
        self._texts, self._labels = _States(self._made.texts), _States(self._made.labels)

    @property
    def rows(self) -> Sequence[Row]:
        """The rows; none if no encoder was judged."""
        return self._made.rows

    @property
    def judges(self) -> tuple[_States, _States]:
        """Judges for loading the encoders of texts and of labels, one after the other."""
        return self._texts, self._labels

    def in_float32(self, encoders: Encoders) -> Encoders:
        """Return encoders that replay the states of these rows in float32, and no others."""
        labels = None if encoders.labels is None else self._labels.stand_in(encoders.labels)
        return Encoders(self._texts.stand_in(encoders.texts), labels)


class _Rows:
    """Makes the rows, first with the text encoder's positions, then with the label encoder's too."""

    def __init__(self, make: Callable[[int | None, int | None], RowMaker], context: LoadContext) -> None:
        self._make = make
        self._context = context
        self._text_positions: int | None = None
        self.rows: Sequence[Row] = ()

    def texts(self, positions: int | None) -> Sequence[Ids]:
        """Make them, and return the ids of the texts."""
        self._text_positions = positions
        self.rows = judged_rows(self._make(positions, None), self._context)
        return [row.ids for row in self.rows]

    def labels(self, positions: int | None) -> Sequence[Ids]:
        """Make them, and return the ids of the distinct labels."""
        self.rows = judged_rows(self._make(self._text_positions, positions), self._context)
        return list(distinct_labels(self.rows).values())


class _States:
    """A judge that records the states in float32 and never refuses: logits need the states of both encoders."""

    def __init__(self, sequences: Callable[[int | None], Sequence[Ids]]) -> None:
        self._sequences = sequences
        self._states: torch.Tensor | None = None

    def probes(self, limit: int | None) -> tuple[PackedBatch, bool]:
        """Make the sequences; see `sie_pytorch.forward.Judge.probes`."""
        return PackedBatch([TokenSequence(ids) for ids in self._sequences(limit)]), False

    def refusal(self, states: torch.Tensor, expected: torch.Tensor) -> None:
        """Take the states."""
        self._states = expected

    def stand_in(self, encoder: Encoder) -> Encoder:
        """Return an encoder that replays these states; the encoder itself if it is in float32 or was not judged."""
        if self._states is None or encoder.info.precision == "float32":
            return encoder
        return _Known(encoder.info, self._states)


@dataclass(slots=True)
class _Known:
    """Stands for an encoder over one batch."""

    info: RunnerInfo
    states: torch.Tensor

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the states of that batch; see `Encoder.forward`."""
        assert len(batch.ids) == len(self.states)
        return self.states

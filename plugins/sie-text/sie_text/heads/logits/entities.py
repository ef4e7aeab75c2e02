"""Entities of a text: a token classifier's logits, read as spans of the text by the names of its labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import ItemOutput
from sie_text.entities import Marks, TagSet, Window, joined_marks, mark, read_entities
from sie_text.heads.protocol import Head, Output
from sie_text.heads.spans import Upload
from sie_text.sequences import PackedBatch, TokenSequence


class TokenLogits(Protocol):
    """Maps the states of tokens to logits."""

    memory_bytes: int
    """Bytes of its weights, where it computes."""

    def __call__(self, states: Any, /) -> Any:
        """Turn `[tokens, hidden]` into float32 logits `[tokens, labels]`."""


@dataclass(slots=True)
class WindowOutput(ItemOutput):
    """The output of one of several windows of a text, whose entities are read once all are there."""

    marks: Marks | None = None


class EntityHead(Head):
    """Labels each token of a text, and reads entities off the labels.

    The `finish_options` of a sequence are its `Window`. Only tokens that a window owns are labelled.
    """

    output: Output = "entities"

    def __init__(self, logits: TokenLogits, tags: TagSet) -> None:
        """Keep the source of the logits, and their meaning."""
        self._logits = logits
        self._tags = tags
        self.dims = len(tags.labels)
        self.memory_bytes = logits.memory_bytes
        self.notes = {"labels": ", ".join(tags.kinds)}

    def lay_out(self, batch: PackedBatch, upload: Upload) -> Any:
        """Find the states of the tokens that are labelled: int64 `[tokens]`, rows of the flat states."""
        windows: list[Window] = [sequence.finish_options for sequence in batch.sequences]
        places = zip(batch.cu_seqlens[:-1].tolist(), windows, strict=True)
        rows = [np.arange(start + window.begins, start + window.begins + window.own) for start, window in places]
        (row_ids,) = upload([np.concatenate(rows)])
        return row_ids

    def compute(self, states: Any, layout: Any, choice: None) -> Sequence[Any]:
        """Turn flat states `[total_tokens, hidden]` into float32 logits `[tokens, labels]`."""
        return (self._logits(states[layout]),)

    def finish(
        self, sequences: Sequence[TokenSequence], layout: Any, arrays: Sequence[NDArray[Any]], choice: None
    ) -> list[ItemOutput]:
        """Read the entities of each text, or keep the labels of each window of a long one."""
        windows: list[Window] = [sequence.finish_options for sequence in sequences]
        parts = np.split(arrays[0], np.cumsum([window.own for window in windows])[:-1])
        return [self._output(window, logits) for window, logits in zip(windows, parts, strict=True)]

    def join(self, windows: Sequence[Window], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Read the entities of a text by the outputs of all of its windows, in the text's order."""
        parts = [output.marks for output in outputs if isinstance(output, WindowOutput) and output.marks is not None]
        return self._read(windows[0], joined_marks(parts))

    def _output(self, window: Window, logits: NDArray[np.float32]) -> ItemOutput:
        marks = mark(logits, window.choice.strategy)
        return self._read(window, marks) if window.alone else WindowOutput(marks=marks)

    def _read(self, window: Window, marks: Marks) -> ItemOutput:
        return ItemOutput(entities=read_entities(window.tokens, marks, self._tags, window.choice))

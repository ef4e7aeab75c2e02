"""Scores of pairs of texts, and classifications by pairs: a classifier's logits, read by the names of its labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import Classification, ItemOutput
from sie_text.heads.logits.classifier import Classifier
from sie_text.heads.protocol import Head, Output
from sie_text.heads.spans import Spans, Upload
from sie_text.labels import Labels, ScoreChoice, classify, score
from sie_text.sequences import PackedBatch, TokenSequence


@dataclass(frozen=True, slots=True)
class LabelChoice:
    """A request's choices for the logits of a text with one of its labels."""

    label: str
    alone: bool
    """Whether it is the text's only label."""
    multi_label: bool


class PairHead(Head):
    """Turns each pair's logits into a score, or passes them on as `dense` to where the labels of a text are combined.

    The request's choice for a pair is its `TokenSequence.finish_options`, a `ScoreChoice` or a `LabelChoice`. It is
    read after the forward pass, so all requests share batches.
    """

    output: Output = "score"

    def __init__(self, classifier: Classifier, labels: Labels) -> None:
        """Keep the source of the logits, and their meaning."""
        self._classifier = classifier
        self.labels = labels
        self.dims = classifier.labels
        self.memory_bytes = classifier.memory_bytes
        self.notes = {} if len(labels.names) == 1 else {"labels": ", ".join(labels.names)}

    def lay_out(self, batch: PackedBatch, upload: Upload) -> Spans:
        """Find the states of each pair that the classifier reads."""
        return self._classifier.lay_out(batch, upload)

    def compute(self, states: Any, layout: Spans, choice: None) -> Sequence[Any]:
        """Turn flat states `[total_tokens, hidden]` into float32 logits `[pairs, labels]`."""
        return (self._classifier(states, layout),)

    def finish(
        self, sequences: Sequence[TokenSequence], layout: Spans, arrays: Sequence[NDArray[Any]], choice: None
    ) -> list[ItemOutput]:
        """Give each pair the output that its choice asks for."""
        return [self._output(each.finish_options, logits) for each, logits in zip(sequences, arrays[0], strict=True)]

    def classified(self, choices: Sequence[LabelChoice], logits: NDArray[np.float32]) -> ItemOutput:
        """Classify a text by the logits `[labels, classes]` of its labels."""
        assert self.labels.entailment is not None
        names = [choice.label for choice in choices]
        found: tuple[Classification, ...] = classify(
            logits, names, self.labels.entailment, multi_label=choices[0].multi_label
        )
        return ItemOutput(classifications=found)

    def _output(self, choice: ScoreChoice | LabelChoice, logits: NDArray[np.float32]) -> ItemOutput:
        if isinstance(choice, ScoreChoice):
            return ItemOutput(score=score(logits, choice))
        return self.classified([choice], logits[None]) if choice.alone else ItemOutput(dense=logits)

"""Loads the source of a pair's logits by its recipe, and the head that turns them into scores and classifications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sie_text.labels import Labels, ScoreChoice, classify, score
from sie_text.recipe import PairRecipe
from sie_text.sequences import PackedBatch, TokenSequence

from sie_core.contracts import Classification, ItemOutput
from sie_pytorch.heads import Classifier, Head, HeadContext, Output, PooledClassifier, Spans, Steps, Upload
from sie_pytorch.heads.own_class.loading import load_classifier, load_vocabulary_rows


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

    def compute(self, states: torch.Tensor, layout: Spans, choice: None) -> tuple[torch.Tensor]:
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


def load_head(recipe: PairRecipe, context: HeadContext) -> PairHead:
    """Load the head of a recipe.

    Raises:
        ModelLoadError: Weights of the head are missing or do not fit.
        NotUnderstoodError: The class of the checkpoint does something that no head does.
    """
    classifier = _load_classifier(recipe, context)
    return PairHead(classifier, Labels.of(context.card, classifier.labels, recipe.activation))


def _load_classifier(recipe: PairRecipe, context: HeadContext) -> Classifier:
    folder, device = context.card.path, context.device
    if recipe.source == "classifier":
        return load_classifier(folder, context.card.records).to(device)
    if recipe.source == "vocabulary":
        return _Odds(load_vocabulary_rows(folder, recipe.tokens, context.card.records).to(device))
    assert recipe.pooling is not None
    steps = Steps(recipe.steps, len(recipe.pooling.modes) * context.hidden_size, device)
    return PooledClassifier(recipe.pooling, steps)


class _Odds(Classifier):
    """The logit of a match minus that of no match: the log-odds between the two tokens."""

    labels = 1

    def __init__(self, rows: Classifier) -> None:
        self._rows = rows
        self.memory_bytes = rows.memory_bytes

    def __call__(self, states: torch.Tensor, spans: Spans) -> torch.Tensor:
        logits = self._rows(states, spans)
        return logits[:, :1] - logits[:, 1:2] if logits.shape[1] == 2 else logits

"""Classes of a text: a classifier's logits, read as scores by the names of its labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import Classification, ItemOutput, ModelCard, Task
from sie_text.heads.logits.classifier import Classifier
from sie_text.heads.protocol import Head, Output
from sie_text.heads.spans import Spans, Upload
from sie_text.labels import sigmoid, softmax
from sie_text.sequences import PackedBatch, TokenSequence

Activation = Literal["identity", "sigmoid", "softmax"]


class ClassificationHead(Head):
    """Gives every text all classes, the likeliest first."""

    output: Output = "classifications"

    def __init__(self, classifier: Classifier, names: Sequence[str], activation: Activation) -> None:
        """Keep the classifier, the names of its labels, and the default activation.

        Requests set it by the option `activation`, which a family declares for the stage `run`.
        """
        self._classifier = classifier
        self._activation = activation
        self.classes = tuple(names)
        self.dims = len(self.classes)
        self.memory_bytes = classifier.memory_bytes
        self.notes = {"labels": ", ".join(self.classes)}

    def choose(self, task: Task) -> Activation:
        """Read the option `activation`."""
        activation: Activation = task.options.get("activation") or self._activation
        return activation

    def lay_out(self, batch: PackedBatch, upload: Upload) -> Spans:
        """Find the states of each text that the classifier reads."""
        return self._classifier.lay_out(batch, upload)

    def compute(self, states: Any, layout: Spans, choice: Activation) -> Sequence[Any]:
        """Turn flat states `[total_tokens, hidden]` into float32 logits `[texts, labels]`."""
        return (self._classifier(states, layout),)

    def finish(
        self, sequences: Sequence[TokenSequence], layout: Spans, arrays: Sequence[NDArray[Any]], choice: Activation
    ) -> list[ItemOutput]:
        """Make scores from each text's logits; the check of outputs finds NaN."""
        return [ItemOutput(classifications=self._classes(row, choice)) for row in arrays[0]]

    def _classes(self, logits: NDArray[np.float32], activation: Activation) -> tuple[Classification, ...]:
        if activation == "softmax":
            scores: NDArray[Any] = softmax(logits)
        else:
            scores = sigmoid(logits.astype(np.float64)) if activation == "sigmoid" else logits
        order = np.argsort(-scores, kind="stable")
        return tuple(Classification(self.classes[place], float(scores[place])) for place in order)


def default_activation(card: ModelCard, labels: int) -> Activation:
    """Choose as transformers' pipeline `text-classification` does: by `problem_type`, then by the number of labels."""
    problem = card.config.get("problem_type")
    if problem == "regression":
        return "identity"
    return "sigmoid" if problem == "multi_label_classification" or labels == 1 else "softmax"

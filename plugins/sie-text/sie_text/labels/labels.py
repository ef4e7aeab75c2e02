"""The meaning of a pair's logits: the names of the labels, the one that is the score, and the conversion of its logit.

Scores follow `CrossEncoder.predict` (sentence-transformers 6), classification by entailment transformers' pipeline
`zero-shot-classification` (arXiv 1909.00161).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import Classification, InvalidInput, ModelCard, Task
from sie_text.labels.activations import ACTIVATIONS, softmax
from sie_text.recipe import entailment_label


@dataclass(frozen=True, slots=True)
class ScoreChoice:
    """A request's choices for the logits of a pair."""

    label: int
    activation: str
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of a model."""

    names: tuple[str, ...]
    entailment: int | None
    """The label that means entailment, if the model has one."""
    score: int | None
    """The label that is the score by default."""
    _: KW_ONLY
    activation: str
    """A class of `torch.nn`: the default activation of the logits."""

    @classmethod
    def of(cls, card: ModelCard, count: int, activation: str | None) -> Labels:
        """Name `count` labels by the card.

        Default score: the only label; else entailment; else, of a cross-encoder's two, the second. Other classifiers
        come here with a profile that names the label.
        """
        names = _names(card, count)
        entailment = entailment_label(_numbers(card, names)) if count > 1 else None
        score = entailment if entailment is not None else count - 1 if count <= 2 else None
        return cls(names, entailment, score, activation=activation or ("Sigmoid" if count == 1 else "Identity"))

    def choose(self, task: Task, model: str) -> ScoreChoice:
        """Read the options `score_label`, `activation` and `temperature`.

        Raises:
            InvalidInput: The label does not exist, no label is the score, or softmax is requested over one label.
        """
        name, activation = task.options.get("score_label"), task.options.get("activation")
        label = self.score if name is None else self._number(name, model)
        if label is None:
            raise InvalidInput(
                f"{model} has the labels {', '.join(self.names)}: name the one that is the score in "
                "options.score_label.",
                param="options.score_label",
            )
        if activation == "softmax" and len(self.names) == 1:
            raise InvalidInput(
                f"options.activation is 'softmax', and {model} has one label, whose share is always 1; allowed: "
                "identity, sigmoid.",
                param="options.activation",
            )
        return ScoreChoice(label, activation or self.activation, float(task.options.get("temperature") or 1.0))

    def _number(self, name: str, model: str) -> int:
        if name not in self.names:
            raise InvalidInput(
                f"options.score_label is {name!r}; the labels of {model} are {', '.join(self.names)}.",
                param="options.score_label",
            )
        return self.names.index(name)


def score(logits: NDArray[np.float32], choice: ScoreChoice) -> float:
    """Compute the score of one pair of its logits `[labels]`; NaN if one is no finite number."""
    if not np.isfinite(logits).all():  # a sigmoid would make a score of infinity
        return float("nan")
    logits = logits / choice.temperature
    if choice.activation == "softmax":
        return float(softmax(logits)[choice.label])
    name = {"identity": "Identity", "sigmoid": "Sigmoid"}.get(choice.activation, choice.activation)
    return float(ACTIVATIONS[name](logits[choice.label : choice.label + 1].astype(np.float64))[0])


def classify(
    logits: NDArray[np.float32], labels: Sequence[str], entailment: int, *, multi_label: bool
) -> tuple[Classification, ...]:
    """Turn the logits `[labels, classes]` of one text's hypotheses into classifications, the likeliest first.

    With `multi_label`, or for a single label, a score is the probability of entailment against contradiction.
    Contradiction is the first class or, if that is entailment, the last. Otherwise the labels' entailments share 1.
    """
    if multi_label or len(labels) == 1:
        contradiction = -1 if entailment == 0 else 0
        scores = softmax(logits[:, [contradiction, entailment]])[:, 1]
    else:
        scores = softmax(logits[:, entailment])
    found = [Classification(label, float(score)) for label, score in zip(labels, scores, strict=True)]
    return tuple(sorted(found, key=lambda each: -each.score))


def _names(card: ModelCard, count: int) -> tuple[str, ...]:
    written = card.config.get("id2label")
    by_number = {str(number): str(name) for number, name in written.items()} if isinstance(written, Mapping) else {}
    return tuple(by_number.get(str(number), f"LABEL_{number}") for number in range(count))


def _numbers(card: ModelCard, names: tuple[str, ...]) -> dict[str, int]:
    written = card.config.get("label2id")
    if isinstance(written, Mapping):
        return {
            str(name): number for name, number in written.items() if isinstance(number, int) and number < len(names)
        }
    return {name: number for number, name in enumerate(names)}

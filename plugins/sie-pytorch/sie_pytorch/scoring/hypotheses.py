"""Zero-shot classification by entailment: labels as hypotheses, and probabilities of logits.

The rules are those of transformers' pipeline `zero-shot-classification` (arXiv 1909.00161). It knows no tokenizer
and no tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import Classification, InvalidInput, Task
from sie_pytorch.prompts import LONGEST_PROMPT, MOST_ADDED
from sie_pytorch.scoring.options import HYPOTHESIS


def hypotheses(task: Task) -> list[str]:
    """Write each label of `task` out as a sentence.

    Raises:
        InvalidInput: The template does not hold `{}` once, or is long; or there is an instruction, which none reads.
    """
    if task.instruction:
        raise InvalidInput(
            "instruction is not read where texts are classified, options.hypothesis_template is; leave it out.",
            param="instruction",
        )
    template = task.options.get("hypothesis_template") or HYPOTHESIS
    parts = [""]
    try:
        for literal, field, form, conversion in Formatter().parse(template):
            parts[-1] += literal
            if field in {"", "label"} and not form and not conversion:
                parts.append("")
            elif field is not None:
                raise ValueError(field)
    except ValueError:
        parts = []
    if len(parts) == 2 and (len(template) > LONGEST_PROMPT or len(template) * len(task.labels) > MOST_ADDED):
        raise InvalidInput(
            f"options.hypothesis_template puts {len(template)} characters around each of {len(task.labels)} labels; "
            f"{LONGEST_PROMPT} are allowed around one and {MOST_ADDED} around all: shorten it.",
            param="options.hypothesis_template",
        )
    if len(parts) != 2:
        raise InvalidInput(
            f"options.hypothesis_template is {template!r}; allowed: a sentence with {{}} once, where the label goes.",
            param="options.hypothesis_template",
        )
    return [label.join(parts) for label in task.labels]


def classify(
    logits: NDArray[np.float32], labels: Sequence[str], entailment: int, *, multi_label: bool
) -> tuple[Classification, ...]:
    """Turn the logits `[labels, classes]` of one text's hypotheses into classifications, the likeliest first.

    With `multi_label`, or of a single label, a score is the probability of entailment against contradiction, which is
    the first class or, where entailment is that, the last; otherwise the labels' entailments share 1.
    """
    if multi_label or len(labels) == 1:
        contradiction = -1 if entailment == 0 else 0
        scores = softmax(logits[:, [contradiction, entailment]])[:, 1]
    else:
        scores = softmax(logits[:, entailment])
    found = [Classification(label, float(score)) for label, score in zip(labels, scores, strict=True)]
    return tuple(sorted(found, key=lambda each: -each.score))


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compute the softmax along the last axis."""
    powers: NDArray[np.float64] = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    shares: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return shares

"""Classes of single texts by transformers' own class and its pipeline `text-classification`, one text at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import transformers as tf
from transformers.pipelines import TextClassificationPipeline

from sie_core.contracts import Classification, Item, ItemOutput, LoadContext, ModelInfo, ReferenceModel, Task
from sie_sentence_transformers.references.labels.pipelines import load_pipeline
from sie_sentence_transformers.references.words import refuse_options

OPTIONS = frozenset({"activation", "max_seq_length"})
FUNCTIONS = {None: None, "identity": "none", "sigmoid": "sigmoid", "softmax": "softmax"}
"""The pipeline's names of activations, by the option's; None leaves the choice to the files."""


class Classes(ReferenceModel):
    """A classifier that transformers has loaded."""

    def __init__(self, pipeline: Any, length: int | None) -> None:
        self._pipeline = pipeline
        self._length = length
        self.gives = frozenset({"classifications"})

    @classmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> Classes:
        """Load the class that the checkpoint names."""
        auto_class = tf.AutoModelForSequenceClassification
        pipeline = load_pipeline(context, served, auto_class, TextClassificationPipeline)
        return cls(pipeline, served.max_sequence_length)

    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Classify each text separately; all classes, in the pipeline's order.

        Raises:
            NoReferenceError: The profile has an option that the pipeline does not do.
        """
        refuse_options(task, OPTIONS)
        length = task.options.get("max_seq_length") or self._length
        asked: dict[str, Any] = {"function_to_apply": FUNCTIONS[task.options.get("activation")]}
        if length is not None:
            asked |= {"truncation": True, "max_length": length}
        found = [self._pipeline(item.text or "", top_k=None, **asked) for item in items]
        return [
            ItemOutput(classifications=tuple(Classification(each["label"], float(each["score"])) for each in classes))
            for classes in found
        ]

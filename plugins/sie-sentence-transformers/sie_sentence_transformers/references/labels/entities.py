"""Entities by transformers' own class for token classification and its pipeline, one text at a time.

The pipeline cuts a text beyond its window, or pieces entities together. Here each token of such a text is labelled in
the window in which it is farthest from a cut, and the pipeline reads entities off the labels of the whole text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers as tf
from numpy.typing import NDArray
from sie_text.entities import TagSet
from transformers.pipelines.token_classification import AggregationStrategy, TokenClassificationPipeline

from sie_core.contracts import Entity, Item, ItemOutput, LoadContext, ModelInfo, NoReferenceError, ReferenceModel, Task
from sie_sentence_transformers.references.labels.pipelines import load_pipeline
from sie_sentence_transformers.references.words import refuse_options

OPTIONS = frozenset({"aggregation_strategy", "threshold", "max_seq_length"})
OVERLAP = 4
"""Windows share one part of so many."""


class Entities(ReferenceModel):
    """A token classifier that transformers has loaded."""

    def __init__(self, pipeline: Any, window: int | None) -> None:
        self._pipeline = pipeline
        self._window = window
        self.gives = frozenset({"entities"})

    @classmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> Entities:
        """Load the class that the checkpoint names.

        Raises:
            NoReferenceError: The pipeline does not know the scheme of its labels.
        """
        pipeline = load_pipeline(context, served, tf.AutoModelForTokenClassification, TokenClassificationPipeline)
        _refuse_scheme(pipeline.model.config.id2label)
        return cls(pipeline, served.max_sequence_length)

    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Find the entities of each text separately.

        Raises:
            NoReferenceError: The profile has an option that the pipeline does not do.
        """
        refuse_options(task, OPTIONS)
        strategy = task.options.get("aggregation_strategy", "simple")
        window, least = task.options.get("max_seq_length") or self._window, task.options.get("threshold", 0.0)
        found = [self.entities(item.text or "", strategy, window) for item in items]
        return [ItemOutput(entities=tuple(each for each in entities if each.score > least)) for entities in found]

    @torch.inference_mode()
    def entities(self, text: str, strategy: str, window: int | None) -> list[Entity]:
        """Find the entities of a text of any length, with windows of `window` tokens."""
        tokenizer, asked = self._pipeline.tokenizer, AggregationStrategy(strategy)
        read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False)
        ids = list(read["input_ids"])
        if not ids:
            return []
        places = list(read["offset_mapping"])
        scores = self._labelled(ids, window)
        words = self._pipeline.gather_pre_entities(text, torch.tensor(ids), scores, places, [0] * len(ids), asked)
        found = [_entity(text, each) for each in self._pipeline.aggregate(words, asked)]
        return [each for each in found if each.label != "O" and each.text]

    def _labelled(self, ids: list[int], window: int | None) -> NDArray[np.float32]:
        """Compute the probabilities `[tokens, labels]`, each token's in the window that shows the most around it."""
        room = len(ids) if window is None else window - self._pipeline.tokenizer.num_special_tokens_to_add()
        if len(ids) <= room:
            return self._probabilities(ids)
        shared = room // OVERLAP
        count = -(-(len(ids) - shared) // (room - shared))
        starts = [number * (len(ids) - room) // (count - 1) for number in range(count)]
        windows = [self._probabilities(ids[start : start + room]) for start in starts]
        rows = []
        for place in range(len(ids)):
            seen = [number for number, start in enumerate(starts) if start <= place < start + room]
            number = max(seen, key=lambda each: _around(place, starts[each], room, len(ids)))
            rows.append(windows[number][place - starts[number]])
        return np.stack(rows)

    def _probabilities(self, ids: list[int]) -> NDArray[np.float32]:
        """Run the model over one window, special tokens around it."""
        example = self._pipeline.tokenizer("a", return_special_tokens_mask=True)
        before = example["special_tokens_mask"].index(0)
        after = len(example["input_ids"]) - example["special_tokens_mask"][::-1].index(0)
        framed = torch.tensor([[*example["input_ids"][:before], *ids, *example["input_ids"][after:]]])
        logits = self._pipeline.model(input_ids=framed, attention_mask=torch.ones_like(framed)).logits[0]
        shares: NDArray[np.float32] = logits[before : before + len(ids)].softmax(dim=-1).numpy()
        return shares


def _around(place: int, start: int, room: int, tokens: int) -> int:
    """Count the tokens between a token and the nearest edge of a window that cuts the text."""
    before, after = place - start, start + room - 1 - place
    return min(before if start else tokens, after if start + room < tokens else tokens)


def _entity(text: str, found: Mapping[str, Any]) -> Entity:
    start, end = int(found["start"]), int(found["end"])
    return Entity(
        text[start:end], found.get("entity_group") or found["entity"], float(found["score"]), start=start, end=end
    )


def _refuse_scheme(labels: Mapping[int, str]) -> None:
    """Refuse labels whose prefixes the pipeline reads otherwise.

    Raises:
        NoReferenceError: They are in BIOES, or plain with a hyphen.
    """
    names = [str(labels[number]) for number in sorted(labels)]
    tags = TagSet.of(names)
    kinds = [name if name == "O" else tags.kinds[kind] for name, kind in zip(names, tags.kind_of, strict=True)]
    if tags.ends.any() or any(name.split("-", 1)[-1] != kind for name, kind in zip(names, kinds, strict=True)):
        raise NoReferenceError(f"does not read the scheme of its labels: {', '.join(names[:8])}")

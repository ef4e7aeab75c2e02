"""The family `pytorch-pairs`: models that read two texts at once, for `score` and for `extract` by labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from sie_text.heads import LabelChoice, PairHead
from sie_text.pairs import PairPreparation

from sie_core.contracts import Item, ItemOutput, Task, Unit
from sie_pytorch.heads.composed.model import PackedModel

if TYPE_CHECKING:
    from sie_pytorch.forward import BuiltRunner


class PairModel(PackedModel):
    """A cross-encoder, a reranker made of a language model, or an entailment classifier."""

    def __init__(
        self,
        model: str,
        preparation: PairPreparation,
        runner: BuiltRunner,
        head: PairHead,
        *,
        gives_types: bool,
        device: torch.device,
        threads: int,
    ) -> None:
        super().__init__(runner, [head], device, threads, gives_types=gives_types)
        self._name = model
        self._preparation = preparation
        self.tokenizer = preparation.tokenizer
        self._head = head

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; one unit a document, or one a text and label, its cost the tokens of the pair.

        Raises:
            InvalidInput: An item, the query or an option is wrong.
        """
        key = self._chosen(task, [self._head.output])
        if task.operation == "score":
            choice = self._head.labels.choose(task, self._name)
            for index, sequence in enumerate(self._preparation.score_sequences(items, task)):
                yield replace(sequence, finish_options=choice).unit(index, key)
            return
        multi_label = bool(task.options.get("multi_label", False))
        choices = [LabelChoice(label, len(task.labels) == 1, multi_label) for label in task.labels]
        for index, sequences in enumerate(self._preparation.label_sequences(items, task)):
            for asked, sequence in zip(choices, sequences, strict=True):
                yield replace(sequence, finish_options=asked).unit(index, key)

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Classify a text by the logits of its labels."""
        if len(outputs) == 1:
            return super().combine(units, outputs)
        logits = np.stack([output.dense for output in outputs if output.dense is not None])
        return self._head.classified([unit.payload.finish_options for unit in units], logits)

    def unload(self) -> None:
        """Free the weights now, and PyTorch's cache of them."""
        del self._head
        super().unload()

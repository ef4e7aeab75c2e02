"""The family `pytorch-pairs`: models that read two texts at once, for `score` and for `extract` by labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from sie_core.contracts import Adapter, Item, ItemOutput, LoadContext, Task, Token, Unit, device_errors
from sie_pytorch.pooling import find_spans, last_others
from sie_pytorch.scoring.hypotheses import classify
from sie_pytorch.scoring.labels import Asked, Labels, score
from sie_pytorch.scoring.preparation import PairPreparation, PairRow
from sie_pytorch.showing import show_tokens, write_texts
from sie_pytorch.transfers import HostCopy, Transfers

if TYPE_CHECKING:
    from sie_pytorch.runners import BuiltRunner
    from sie_pytorch.scoring.heads import PairHead


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """A document with the query."""

    row: PairRow
    asked: Asked


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """A text with the hypothesis of one of the request's labels."""

    row: PairRow
    label: str
    alone: bool
    """Whether it is the text's only label."""
    multi_label: bool


KEY = "pair"
"""The inference key of every pair: options are read after the forward pass, so all requests share batches."""


class PairModel(Adapter):
    """A cross-encoder, a reranker made of a language model, or an entailment classifier."""

    def __init__(
        self,
        model: str,
        preparation: PairPreparation,
        runner: BuiltRunner,
        head: PairHead,
        labels: Labels,
        *,
        takes_types: bool,
        device: torch.device,
        threads: int,
    ) -> None:
        self._name = model
        self._preparation = preparation
        self._runner = runner
        self._head = head
        self._labels = labels
        self._takes_types = takes_types
        self._device = device
        self._transfers = Transfers(device)
        self._threads = threads

    @classmethod
    def load(cls, context: LoadContext) -> Adapter:
        """Load the model.

        Raises:
            ModelLoadError: With the failure's class.
            OutOfDeviceMemory: The device has no room.
        """
        from sie_pytorch.scoring.loading import load_pairs

        return load_pairs(cls, context)

    def prepare(self, items: Sequence[Item], task: Task) -> Sequence[Unit]:
        """Tokenise; one unit a document, or one a text and label, its cost the tokens of the pair.

        Raises:
            InvalidInput: An item, the query or an option is wrong.
        """
        if task.operation == "score":
            asked = self._labels.asked(task, self._name)
            scored = self._preparation.score_rows(items, task)
            return [_unit(index, row, ScoredPair(row, asked)) for index, row in enumerate(scored)]
        alone, multi_label = len(task.labels) == 1, bool(task.options.get("multi_label", False))
        return [
            _unit(index, row, LabelledPair(row, label, alone, multi_label))
            for index, rows in enumerate(self._preparation.label_rows(items, task))
            for label, row in zip(task.labels, rows, strict=True)
        ]

    def run(self, units: Sequence[Unit]) -> HostCopy:
        """Run one packed batch to logits `[units, labels]`.

        Raises:
            OutOfDeviceMemory: The device has no room for it.
        """
        if torch.get_num_threads() != self._threads:
            # A thread that used PyTorch before the load keeps the number it had then.
            torch.set_num_threads(self._threads)
        rows: list[PairRow] = [unit.payload.row for unit in units]
        lengths, padding = np.array([len(row.ids) for row in rows]), self._head.padding
        cu_seqlens = np.concatenate(([0], np.cumsum(lengths)))
        inputs = [
            np.concatenate([row.ids for row in rows]),
            np.arange(cu_seqlens[-1]) - np.repeat(cu_seqlens[:-1], lengths),
        ]
        if self._takes_types:
            inputs.append(np.concatenate([row.types for row in rows]))
        lasts = None if padding is None else last_others(inputs[0], cu_seqlens, padding)
        with device_errors(), torch.inference_mode():
            ids, places, *types = self._transfers.upload(inputs)
            spans = find_spans(cu_seqlens, np.zeros_like(lengths), self._transfers.upload, lasts)
            states = self._runner.forward(ids, places, types[0] if types else None, torch.from_numpy(cu_seqlens))
            return self._transfers.download(self._head(states, spans))

    def await_device(self, units: Sequence[Unit], raw: HostCopy) -> bool:
        """Wait for the logits."""
        raw.land()
        return True

    def finish(self, units: Sequence[Unit], raw: HostCopy) -> Sequence[ItemOutput]:
        """Make a score of each pair's logits, or hand them on, as `dense`, to where the labels of a text meet."""
        return [self._output(unit.payload, logits) for unit, logits in zip(units, raw.wait(), strict=True)]

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Classify a text by the logits of its labels."""
        if len(outputs) == 1:
            return super().combine(units, outputs)
        logits = np.stack([output.dense for output in outputs if output.dense is not None])
        return self._classified([unit.payload for unit in units], logits)

    def tokenize(self, texts: Sequence[str], *, special: bool, most: int | None = None) -> Sequence[Sequence[Token]]:
        """List the tokens of texts.

        Raises:
            InvalidInput: A text is not Unicode.
        """
        return show_tokens(self._preparation.tokenizer.core, texts, special=special, most=most)

    def decode(self, ids: Sequence[Sequence[int]], *, special: bool) -> Sequence[str]:
        """Write the texts of token ids.

        Raises:
            InvalidInput: The tokenizer has no such token.
        """
        return write_texts(self._preparation.tokenizer.core, ids, special=special)

    def unload(self) -> None:
        """Free the weights now, and PyTorch's cache of them."""
        del self._runner, self._head
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _output(self, pair: ScoredPair | LabelledPair, logits: NDArray[np.float32]) -> ItemOutput:
        if isinstance(pair, ScoredPair):
            return ItemOutput(score=score(logits, pair.asked))
        return self._classified([pair], logits[None]) if pair.alone else ItemOutput(dense=logits)

    def _classified(self, pairs: Sequence[LabelledPair], logits: NDArray[np.float32]) -> ItemOutput:
        assert self._labels.entailment is not None
        labels = [pair.label for pair in pairs]
        found = classify(logits, labels, self._labels.entailment, multi_label=pairs[0].multi_label)
        return ItemOutput(classifications=found)


def _unit(item: int, row: PairRow, payload: ScoredPair | LabelledPair) -> Unit:
    tokens = len(row.ids)
    return Unit(item, cost=max(1, tokens), key=KEY, payload=payload, tokens=tokens, truncated=row.truncated)

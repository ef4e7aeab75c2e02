"""Converts items to rows: windows of a text after the labels of its request. Runs on CPU threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from sie_text.tokenizer import Ids

from sie_core.contracts import InvalidInput, Item, Task, Truncation
from sie_gliner.checkpoint.config import Pooling
from sie_gliner.options import Choice
from sie_gliner.text.prompts import LabelReader, Prompt, PromptWriter
from sie_gliner.text.tally import Tally
from sie_gliner.text.tokens import Tokens
from sie_gliner.text.windows import Window, WindowSize, split
from sie_gliner.text.words import WordReader, Words


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a forward pass: a window of a text, and the labels it is searched for."""

    ids: Ids
    """int64 (tokens,), labels and special tokens included."""
    places: Ids
    """int64 (tokens,): the number, from 1, of the word that a token represents; 0 for none."""
    prompt: Prompt
    prompt_begins: int
    """The place of the prompt's first token."""
    labels: tuple[str, ...]
    choice: Choice
    text: str
    """The whole text of the item."""
    starts: Ids
    """First character of each word of the window in the text."""
    ends: Ids
    own: tuple[int, int]
    """Characters whose entities are this window's."""
    tally: Tally
    """Shared by all windows of the text."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory, without the text, which belongs to the request."""
        return self.ids.nbytes + self.places.nbytes + self.starts.nbytes + self.ends.nbytes

    @property
    def words(self) -> int:
        """Number of words of the window."""
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Limits:
    """Size of one window."""

    words: int
    """Words of text."""
    tokens: int
    """Tokens, labels and special ones included."""
    overlap: int
    """Words two windows share."""


@dataclass(frozen=True, slots=True)
class RowMaker:
    """Makes rows, for one model."""

    model: str
    words: WordReader
    tokens: Tokens
    labels: PromptWriter | LabelReader
    limits: Limits
    pooling: Pooling
    finds_relations: bool

    def rows(self, items: Sequence[Item], task: Task) -> Iterator[Iterator[tuple[Row, Truncation | None]]]:
        """Yield the rows of each item lazily, one a window, with the truncation of its words.

        A text without words has no rows.

        Raises:
            InvalidInput: An item, a label or an option is wrong.
        """
        choice = Choice.of(task)
        if choice.relation_labels and not self.finds_relations:
            raise InvalidInput(
                f"options.relation_labels: {self.model} was trained on no relations; leave it out.",
                param="options.relation_labels",
            )
        prompt = self.labels.prompt(task.labels, choice.relation_labels)
        room = self.limits.tokens - self.tokens.framing - len(prompt.ids)
        for index, item in enumerate(items):
            words = self.words.read(item, index)
            if not len(words.starts):
                yield iter(())
                continue
            words, cut = self._fitting(words, room, f"items[{index}].text", task)
            windows = split(words.counts, WindowSize(self.limits.words, room, self.limits.overlap))
            tally = Tally(f"items[{index}].text")
            row = partial(self._row, words, prompt=prompt, labels=task.labels, choice=choice, tally=tally)
            yield ((row(window), None if place else cut) for place, window in enumerate(windows))

    def _fitting(self, words: Words, room: int, where: str, task: Task) -> tuple[Words, Truncation | None]:
        """Cut single words that are longer than a window, as in scripts without spaces."""
        if words.counts.max() <= room:
            return words, None
        tokens, counts = len(words.ids), np.minimum(words.counts, room)
        if task.truncate == "error":
            raise InvalidInput(
                f"{where} holds a word of {words.counts.max()} tokens, and {self.model} takes {room}; put spaces into "
                "it, or allow truncation.",
                param=where,
                code="INPUT_TOO_LONG",
            )
        place = np.arange(tokens) - np.repeat(np.cumsum(words.counts) - words.counts, words.counts)
        cut = Words(words.text, words.starts, words.ends, words.ids[place < room], counts)
        return cut, Truncation(tokens, int(counts.sum()))

    def _row(
        self, words: Words, window: Window, *, prompt: Prompt, labels: tuple[str, ...], choice: Choice, tally: Tally
    ) -> Row:
        chosen = slice(window.first, window.last)
        counts = words.counts[chosen]
        begin = int(words.counts[: window.first].sum())
        ids = words.ids[begin : begin + int(counts.sum())]
        before, after = len(self.tokens.tokenizer.head) + len(prompt.ids), len(self.tokens.tokenizer.tail)
        places = np.concatenate((np.zeros(before, np.int64), self._places(counts), np.zeros(after, np.int64)))
        edge = len(words.starts)
        own = (
            int(words.starts[window.own_first]) if window.own_first else 0,
            int(words.starts[window.own_last]) if window.own_last < edge else len(words.text),
        )
        return Row(
            ids=self.tokens.frame(prompt.ids, ids),
            places=places,
            prompt=prompt,
            prompt_begins=len(self.tokens.tokenizer.head),
            labels=labels,
            choice=choice,
            text=words.text,
            starts=words.starts[chosen],
            ends=words.ends[chosen],
            own=own,
            tally=tally,
        )

    def _places(self, counts: Ids) -> Ids:
        """Number the tokens that represent each word: its first, its last, or all."""
        numbers = np.repeat(np.arange(1, len(counts) + 1), counts)
        if self.pooling in {"mean", "max"}:
            return numbers
        lasts = np.cumsum(counts) - 1
        chosen = np.zeros(len(numbers), dtype=np.int64)
        kept = lasts if self.pooling == "last" else lasts - counts + 1
        chosen[kept] = numbers[kept]
        return chosen

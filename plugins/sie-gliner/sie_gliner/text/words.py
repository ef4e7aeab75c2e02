"""A text as the words a GLiNER checkpoint sees, with their places in the text and their tokens."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np
from sie_text.tokenizer import Ids, text_at

from sie_core.contracts import Item
from sie_gliner.checkpoint.splitters import Splitter, Word
from sie_gliner.text.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one text that have tokens."""

    text: str
    starts: Ids
    """Character offsets into the text."""
    ends: Ids
    """Exclusive."""
    ids: Ids
    """The tokens of all words."""
    counts: Ids
    """Number of tokens of each word, at least 1."""


class WordReader:
    """Splits texts as the checkpoint's own splitter does, and tokenises the words.

    A word without tokens, such as a combining mark or a joiner between emoji, is left out. gliner keeps it, and shifts
    every word after it by one. A mark that is left out stays attached to the word it belongs to.
    """

    def __init__(self, model: str, splitter: Splitter, tokens: Tokens) -> None:
        """Keep the parts.

        Args:
            model: The model's id, for messages.
            splitter: The checkpoint's own; several threads may call it.
            tokens: The tokenizer of words.
        """
        self._model = model
        self._split = splitter
        self._tokens = tokens

    def read(self, item: Item, index: int) -> Words:
        """Read the text of `items[index]`; a blank one has no words.

        Raises:
            InvalidInput: The item has no text, or one that is not Unicode.
        """
        text = text_at(item, f"items[{index}]", self._model)
        found = self.split(text)
        ids, counts = self._tokens.words([word for word, _, _ in found])
        starts = np.array([start for _, start, _ in found], dtype=np.int64)
        ends = np.array([end for _, _, end in found], dtype=np.int64)
        if not counts.all():
            _keep_marks(text, starts, ends, counts)
        seen = counts > 0
        return Words(text, starts[seen], ends[seen], self._tokens.plain(ids), counts[seen])

    def split(self, text: str) -> list[Word]:
        """Split a text into words, each with its start and end in the text."""
        return list(self._split(text))


def _keep_marks(text: str, starts: Ids, ends: Ids, counts: Ids) -> None:
    """Extend words over the marks without tokens that stand on their last character."""
    owner: int | None = None
    for word in range(len(counts)):
        if counts[word]:
            owner = word
        elif owner is not None and starts[word] == ends[owner] and _are_marks(text[starts[word] : ends[word]]):
            ends[owner] = ends[word]
        else:
            owner = None


def _are_marks(word: str) -> bool:
    return all(unicodedata.category(character).startswith("M") for character in word)

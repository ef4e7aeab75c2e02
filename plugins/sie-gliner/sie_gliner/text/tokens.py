"""Words and labels to token ids through the tokenizer's Rust core, which several threads may use at once.

GLiNER tokenises word by word: a word's tokens do not depend on its neighbours, so a row is assembled from the tokens of
its words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from sie_text.tokenizer import Ids, TextTokenizer


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenizer that neither pads nor cuts."""

    tokenizer: TextTokenizer
    special: Ids
    """Tokens that have a meaning for the model and never come from a client's text, ascending."""

    @classmethod
    def of(cls, tokenizer: TextTokenizer, markers: Iterable[int] = ()) -> Tokens:
        """Take a tokenizer; `markers` are special, whatever its files say."""
        known = {number for number, token in tokenizer.core.get_added_tokens_decoder().items() if token.special}
        return cls(tokenizer, np.array(sorted({*known, *markers} - {tokenizer.unknown, -1}), dtype=np.int64))

    @property
    def framing(self) -> int:
        """Number of special tokens of every row."""
        return self.tokenizer.framing

    def words(self, words: Sequence[str]) -> tuple[Ids, Ids]:
        """Tokenise words: return all ids, and their number per word."""
        encoding = self.tokenizer.core.encode(list(words), is_pretokenized=True, add_special_tokens=False)
        counts = np.bincount(np.array(encoding.word_ids, dtype=np.int64), minlength=len(words))
        return np.array(encoding.ids, dtype=np.int64), counts.astype(np.int64)

    def ids(self, words: Sequence[str]) -> Ids:
        """Tokenise words, and forget which is which."""
        return self.words(words)[0]

    def label(self, label: str) -> Ids:
        """Tokenise a label that is a separate row, as a text: it is not split into words first."""
        encoding = self.tokenizer.core.encode(label, add_special_tokens=False)
        return np.array(encoding.ids, dtype=np.int64)

    def frame(self, *parts: Ids) -> Ids:
        """Put the special tokens around a row."""
        return self.tokenizer.frame(np.concatenate(parts))

    def holds_special(self, ids: Ids) -> bool:
        """Whether an id has another meaning for the model than the text it came from."""
        return bool(np.isin(ids, self.special).any())

    def plain(self, ids: Ids) -> Ids:
        """Replace ids with another meaning for the model by the unknown one."""
        unknown = self.tokenizer.unknown
        return ids if unknown is None else np.where(np.isin(ids, self.special), unknown, ids)

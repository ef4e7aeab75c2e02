"""Words and labels to token ids through the tokenizer's Rust core alone, which several threads may use at once.

gliner asks transformers, whose tokenisers change while they work. Both tokenise word by word: the tokens of a word are
the same whatever stands beside it, so a row is put together from those of its words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from sie_core.contracts import ModelLoadError

Ids = NDArray[np.int64]

UNLIMITED = 1_000_000_000
"""A tokenizer without a length of its own states one beyond this (transformers: 1e30)."""


def core_of(tokenizer: Any) -> Tokenizer:
    """Take the core of a tokenizer of transformers, and have it neither pad nor cut until that one is called again.

    It is no copy: one made by way of JSON has other scores of a Unigram vocabulary, by a bit, and cuts equal ones
    otherwise.
    """
    core: Tokenizer = tokenizer.backend_tokenizer
    core.no_truncation()
    core.no_padding()
    return core


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenizer that neither pads nor cuts."""

    core: Tokenizer
    head: Ids
    """The special tokens before every row."""
    tail: Ids
    """The special tokens after every row."""
    special: Ids
    """Tokens that mean something to the model and never come from what a client wrote, ascending."""
    unknown: int | None
    pad: int
    max_length: int | None
    """Tokens of a row by the tokenizer's files, special ones included; None for no limit."""

    @classmethod
    def of(cls, tokenizer: Any, markers: Iterable[int] = ()) -> Tokens:
        """Share the core of a tokenizer of transformers; `markers` are special, whatever its files say of them.

        Raises:
            ModelLoadError: `CONFIG`: it has none, or puts special tokens inside a row.
        """
        if not tokenizer.is_fast:
            raise ModelLoadError(
                "CONFIG", f"{type(tokenizer).__name__} has no implementation in the tokenizers library."
            )
        core = core_of(tokenizer)
        encoding = core.encode(["a"], is_pretokenized=True)
        ids, special = np.array(encoding.ids, dtype=np.int64), np.array(encoding.special_tokens_mask, dtype=bool)
        (content,) = np.nonzero(~special)
        if len(content) == 0 or special[content[0] : content[-1] + 1].any():
            raise ModelLoadError("CONFIG", "The tokenizer puts special tokens inside a text.")
        known = {number for number, token in core.get_added_tokens_decoder().items() if token.special}
        unknown, limit = tokenizer.unk_token_id, tokenizer.model_max_length
        return cls(
            core=core,
            head=ids[: content[0]],
            tail=ids[content[-1] + 1 :],
            special=np.array(sorted({*known, *markers} - {unknown, -1}), dtype=np.int64),
            unknown=unknown,
            pad=tokenizer.pad_token_id or 0,
            max_length=None if limit is None or limit >= UNLIMITED else int(limit),
        )

    @property
    def framing(self) -> int:
        """How many special tokens every row gets."""
        return len(self.head) + len(self.tail)

    def words(self, words: Sequence[str]) -> tuple[Ids, Ids]:
        """Tokenise words: the ids of all, and how many each has."""
        encoding = self.core.encode(list(words), is_pretokenized=True, add_special_tokens=False)
        counts = np.bincount(np.array(encoding.word_ids, dtype=np.int64), minlength=len(words))
        return np.array(encoding.ids, dtype=np.int64), counts.astype(np.int64)

    def ids(self, words: Sequence[str]) -> Ids:
        """Tokenise words, and forget which is which."""
        return self.words(words)[0]

    def label(self, label: str) -> Ids:
        """Tokenise a label that is a row of its own, as a text: it is not split into words first."""
        encoding = self.core.encode(label, add_special_tokens=False)
        return np.array(encoding.ids, dtype=np.int64)

    def frame(self, *parts: Ids) -> Ids:
        """Put the special tokens around a row."""
        return np.concatenate((self.head, *parts, self.tail))

    def holds_special(self, ids: Ids) -> bool:
        """Whether one of the ids would mean something else to the model than the text it came from."""
        return bool(np.isin(ids, self.special).any())

    def plain(self, ids: Ids) -> Ids:
        """Replace ids that would mean something else to the model by the unknown one."""
        if self.unknown is None or not self.holds_special(ids):
            return ids
        return np.where(np.isin(ids, self.special), self.unknown, ids)

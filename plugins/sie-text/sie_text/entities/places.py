"""The tokens of a text, where each stands in it, and which of them continue a word."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from sie_text.tokenizer import Ids, TextTokenizer

Places = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedTokens:
    """The tokens of a whole text, without special ones."""

    text: str
    ids: Ids
    starts: Places
    """`[tokens]`: the first character of each token in the text."""
    ends: Places
    """`[tokens]`: the character after it."""
    continues: NDArray[np.bool_] | None
    """`[tokens]`: whether a token belongs to the word of the token before it; None if nothing is asked by word."""

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's place."""
        return self.starts.itemsize + self.ends.itemsize + (0 if self.continues is None else self.continues.itemsize)


def place(text: str, encoding: Encoding, tokenizer: TextTokenizer, *, wordwise: bool) -> PlacedTokens:
    """Read the tokens of `text` off its encoding."""
    offsets = np.fromiter(chain.from_iterable(encoding.offsets), dtype=np.int32).reshape(-1, 2)
    ids, starts, ends = np.array(encoding.ids, dtype=np.int64), offsets[:, 0].copy(), offsets[:, 1].copy()
    continues = None
    if wordwise:
        # The rule of transformers' pipeline. A vocabulary with a prefix for what continues a word shows it by its
        # length; others are told by the spaces of the text.
        prefixed = bool(getattr(tokenizer.core.model, "continuing_subword_prefix", None))
        continues = _is_prefixed(encoding, ends - starts) if prefixed else _touches(text, starts)
        if tokenizer.unknown is not None:
            continues &= ids != tokenizer.unknown
    return PlacedTokens(text, ids, starts, ends, continues)


def _is_prefixed(encoding: Encoding, lengths: Places) -> NDArray[np.bool_]:
    written = np.fromiter(map(len, encoding.tokens), dtype=np.int32)
    prefixed: NDArray[np.bool_] = written != lengths
    return prefixed


def _touches(text: str, starts: Places) -> NDArray[np.bool_]:
    """Whether there is no space right before a token, nor as its first character."""
    spaces = np.zeros(len(text) + 1, dtype=bool)
    spaces[:-1] = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32) == ord(" ")
    touches: NDArray[np.bool_] = (starts > 0) & ~spaces[starts - 1] & ~spaces[starts]
    return touches

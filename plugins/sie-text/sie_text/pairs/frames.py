"""Two texts in one sequence, as the tokenizer itself would pair and cut them.

Each text is tokenised once; a query not once per document.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from tokenizers import Tokenizer

from sie_text.recipe import NotUnderstoodError, PairTruncation
from sie_text.tokenizer import Ids


@dataclass(frozen=True, slots=True)
class PairFrame:
    """The special tokens around and between two texts, and the token type of every part."""

    head: Ids
    middle: Ids
    tail: Ids
    _: KW_ONLY
    types: tuple[Ids, Ids, Ids]
    """Token types of `head`, `middle` and `tail`."""
    text_types: tuple[int, int]
    """Token types of the first and of the second text."""

    @classmethod
    def of(cls, core: Tokenizer) -> PairFrame:
        """Read the frame off a pair that the tokenizer puts together.

        Raises:
            NotUnderstoodError: It puts special tokens inside a text, or the second text first.
        """
        pair = core.encode("a", "b")
        ids, types = np.array(pair.ids, dtype=np.int64), np.array(pair.type_ids, dtype=np.int64)
        owners = np.array([-1 if owner is None else owner for owner in pair.sequence_ids])
        first, second = np.flatnonzero(owners == 0), np.flatnonzero(owners == 1)
        if len(first) == 0 or len(second) == 0 or len(np.unique(owners[first[0] : first[-1] + 1])) > 1:
            raise NotUnderstoodError("its tokenizer does not keep the two texts of a pair apart")
        bounds = (first[0], first[-1] + 1, second[0], second[-1] + 1)
        if bounds[1] > bounds[2] or second[-1] - second[0] + 1 != len(second):
            raise NotUnderstoodError("its tokenizer puts special tokens inside the texts of a pair")
        parts = (slice(bounds[0]), slice(bounds[1], bounds[2]), slice(bounds[3], None))
        head, middle, tail = (ids[part] for part in parts)
        part_types = (types[parts[0]], types[parts[1]], types[parts[2]])
        text_types = (int(types[first[0]]), int(types[second[0]]))
        return cls(head, middle, tail, types=part_types, text_types=text_types)

    @property
    def framing(self) -> int:
        """Number of special tokens of every pair."""
        return len(self.head) + len(self.middle) + len(self.tail)

    def join(self, first: Ids, second: Ids) -> tuple[Ids, Ids]:
        """Put two texts' tokens together; return the ids and the token types, each int64 `[tokens]`."""
        ids = np.concatenate((self.head, first, self.middle, second, self.tail))
        of_first, of_second = self.text_types
        types = np.concatenate(
            (
                self.types[0],
                np.full(len(first), of_first),
                self.types[1],
                np.full(len(second), of_second),
                self.types[2],
            )
        )
        return ids, types


def share(first: int, second: int, room: int, truncation: PairTruncation, fixed: int = 0) -> tuple[int, int] | None:
    """Return how many tokens of each text are kept in `room` tokens; None if the text to cut is too short for that.

    `longest_first` is the tokenizers library's rule. The shorter text stays whole while it fits in half the room. Of
    two longer texts each gets half; the odd token goes to the longer one, or to the second if they are equal. `fixed`
    tokens of the first text, a prompt's, are always kept, plus one of the text itself.
    """
    if first + second <= room:
        return first, second
    least = min(first, fixed + 1)
    kept = _shares(first, second, room, truncation)
    if truncation == "longest_first" and kept[0] < least:
        kept = (least, room - least)
    return kept if kept[0] >= least and kept[1] >= min(second, 1) else None


def _shares(first: int, second: int, room: int, truncation: PairTruncation) -> tuple[int, int]:
    if truncation == "only_first":
        return room - second, second
    if truncation == "only_second":
        return first, room - first
    half = room // 2
    if min(first, second) <= half:
        return (first, room - first) if first <= second else (room - second, second)
    return (room - half, half) if first > second else (half, room - half)

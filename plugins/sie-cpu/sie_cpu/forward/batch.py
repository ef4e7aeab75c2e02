"""A batch as the kernels take it: tokens, states, angles, and whole sequences of it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_cpu.structures import RotaryAngles

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Angles = tuple[Floats, Floats]
"""Cosines and sines of every token's rotary angles, each float32 `[total_tokens, turned]`; the halves are equal."""

INTEGER = 8
"""Bytes of an id, a type and a position."""

SLACK = 1.5
"""A part may be this many times longer or shorter than `most` if that keeps all threads equally busy."""

IMBALANCE = 1.2
"""Most load of one thread, in fair shares, before all threads share each product; see encoder.cpp."""

NOTHING = (None, None, None, None)
"""Replaces `Entered.tokens` if the states are already there."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A batch before the first layer."""

    states: Floats
    """float32 `[tokens, hidden]`, contiguous; unwritten if the kernels look them up."""
    tokens: tuple[int | None, ...] = NOTHING
    """Addresses: of the embeddings, and of each token's id, type and position."""
    angles: tuple[Angles, ...] = ()
    """One per kind of layer, if positions are rotary."""
    kept: tuple[Any, ...] = ()
    """Keeps alive the memory behind the addresses."""

    def span(self, offsets: Ids, keys: Ids | None, first: int = 0, last: int | None = None) -> Span:
        """Describe the sequences from `first` to `last`, exclusive, for the kernels.

        Args:
            offsets: Start of each sequence of the batch, and the end of the last one, int64 `[sequences + 1]`.
            keys: Number of key tokens of each sequence, int64 `[sequences]`; None for all.
            first: The first sequence.
            last: The one after the last; None for all that follow.
        """
        last = len(offsets) - 1 if last is None else last
        start = int(offsets[first])
        embeddings, *numbers = self.tokens
        angles = [
            RotaryAngles(cosine[start:].ctypes.data, sine[start:].ctypes.data, cosine.shape[1])
            for cosine, sine in self.angles
        ]
        return Span(
            self.states[start:].ctypes.data,
            offsets[first : last + 1] - start if start else offsets[first : last + 1],
            None if keys is None else keys[first:last],
            (embeddings, *(None if each is None else each + INTEGER * start for each in numbers)),
            (RotaryAngles * len(angles))(*angles) if angles else None,
        )


@dataclass(frozen=True, slots=True)
class Span:
    """Whole sequences of a batch in the kernels' form; the batch keeps the addressed memory alive."""

    states: int
    """The address of the first token's."""
    offsets: Ids
    """int64 `[sequences + 1]`, from 0 on."""
    keys: Ids | None
    """int64 `[sequences]`: number of key tokens of each sequence; None for all."""
    tokens: tuple[int | None, ...]
    """As in `Entered`."""
    angles: ctypes.Array[RotaryAngles] | None
    """One per kind of layer, if positions are rotary."""


def spans(bounds: Sequence[int], most: int, threads: int) -> Iterator[tuple[int, int]]:
    """Cut a batch between sequences into parts (first, last exclusive) of about `most` tokens each.

    The kernels give each thread whole sequences if that keeps all threads busy. Otherwise the threads share every
    product, which takes a quarter longer for so few tokens. So a part may exceed `most` a little, or fall below it.
    """
    first = 0
    while first + 1 < len(bounds):
        best, busy = (False, 1), [0] * threads
        for count, last in enumerate(range(first + 1, len(bounds)), 1):
            tokens = bounds[last] - bounds[first]
            if count > 1 and tokens > SLACK * most:
                break
            busy[busy.index(min(busy))] += bounds[last] - bounds[last - 1]
            even = SLACK * tokens >= most and max(busy) * threads <= IMBALANCE * tokens
            if even or tokens <= most:
                best = max(best, (even, count))
        yield first, first + best[1]
        first += best[1]

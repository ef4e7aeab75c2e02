"""Inputs of the first layer: table rows that the kernels look up, or states that the model's modules compute."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from sie_pytorch.forward import Angles, EmbeddingTables, EncoderEntry, LowRank

from sie_cpu.structures import Embeddings, Norm, RotaryAngles, Table

ENTERED_AT_ONCE = 1024
"""Tokens that PyTorch embeds together."""

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

    states: torch.Tensor
    """float32 `[tokens, hidden]`; unwritten if the kernels look them up."""
    tokens: tuple[int | None, ...] = NOTHING
    """Addresses: of the embeddings, and of each token's id, type and position."""
    angles: tuple[Angles, ...] = ()
    """One per kind of layer, if positions are rotary."""
    kept: tuple[torch.Tensor | None, ...] = ()
    """Keeps alive the tensors behind the addresses."""

    def span(self, offsets: torch.Tensor, keys: torch.Tensor | None, first: int = 0, last: int | None = None) -> Span:
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
            RotaryAngles(cosine[start:].data_ptr(), sine[start:].data_ptr(), cosine.shape[1])
            for cosine, sine in self.angles
        ]
        return Span(
            self.states[start:].data_ptr(),
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
    offsets: torch.Tensor
    """int64 `[sequences + 1]`, from 0 on."""
    keys: torch.Tensor | None
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


class Entry:
    """Computes the kernels' input from tokens."""

    def __init__(self, entry: EncoderEntry, hidden: int) -> None:
        """Describe the tables of `entry` for the kernels, if embeddings of `hidden` elements consist of them alone."""
        self._modules, self._hidden = entry, hidden
        tables = entry.tables()
        self._embeddings = None
        if tables is not None and {each.shape[1] for each in (tables.words, tables.positions)} == {hidden}:
            self._embeddings, self._read = _described(tables), tables

    def __call__(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        low_rank: LowRank | None,
    ) -> Entered:
        """Prepare a batch for the first layer; arguments are those of `Runner.forward`."""
        states = torch.empty(len(ids), self._hidden)
        if self._embeddings is None:
            return Entered(states, angles=self._compute(states, ids, positions, segment_ids, cu_seqlens, low_rank))
        numbers = (ids, segment_ids, self._modules.position_ids(ids, positions))
        kept = tuple(None if each is None else each.to(torch.int64).contiguous() for each in numbers)
        addresses = (None if each is None else each.data_ptr() for each in kept)
        return Entered(states, (ctypes.addressof(self._embeddings), *addresses), kept=kept)

    def _compute(
        self,
        states: torch.Tensor,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        low_rank: LowRank | None,
    ) -> tuple[Angles, ...]:
        """Write the states of whole sequences, few tokens at a time, so that intermediate results stay in the cache,
        and small.
        """
        angles: list[list[Angles]] = []
        for start, stop in _spans(cu_seqlens.tolist()):
            segments = None if segment_ids is None else segment_ids[start:stop]
            entered, turns = self._modules(ids[start:stop], positions[start:stop], segments, low_rank)
            states[start:stop] = entered
            angles.append(turns)
        cosines_and_sines = [zip(*kind, strict=True) for kind in zip(*angles, strict=True)]
        joined = ((torch.cat(cosine), torch.cat(sine)) for cosine, sine in cosines_and_sines)
        return tuple((cosine.float().contiguous(), sine.float().contiguous()) for cosine, sine in joined)


def _described(tables: EmbeddingTables) -> Embeddings:
    rows = (tables.words, tables.types, tables.positions)
    described = (Table() if each is None else Table(each.data_ptr(), len(each)) for each in rows)
    return Embeddings(*described, Norm(tables.weight.data_ptr(), tables.bias.data_ptr()), tables.epsilon)


def _spans(bounds: list[int]) -> Iterator[tuple[int, int]]:
    """Cut a batch between sequences, wherever `ENTERED_AT_ONCE` tokens are together."""
    start = 0
    for stop in bounds[1:]:
        if stop - start >= ENTERED_AT_ONCE or stop == bounds[-1]:
            yield start, stop
            start = stop

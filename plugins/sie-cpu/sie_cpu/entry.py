"""Inputs of the first layer: table rows that the kernels look up, or states that PyTorch's modules compute."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from sie_pytorch.forward import Angles as TorchAngles
from sie_pytorch.forward import Batch, EmbeddingTables, EncoderEntry

from sie_cpu.forward.batch import Angles, Entered
from sie_cpu.structures import Embeddings, Norm, Table

ENTERED_AT_ONCE = 1024
"""Tokens that PyTorch embeds together."""


class Entry:
    """Computes the kernels' input from tokens."""

    def __init__(self, entry: EncoderEntry, hidden: int) -> None:
        """Describe the tables of `entry` for the kernels, if embeddings of `hidden` elements consist of them alone."""
        self._modules, self._hidden = entry, hidden
        tables = entry.tables()
        self._embeddings = None
        if tables is not None and {each.shape[1] for each in (tables.words, tables.positions)} == {hidden}:
            self._embeddings, self._read = _described(tables), tables

    def __call__(self, batch: Batch) -> Entered:
        """Prepare a batch for the first layer."""
        states = np.empty((len(batch.ids), self._hidden), dtype=np.float32)
        if self._embeddings is None:
            return Entered(states, angles=self._compute(torch.from_numpy(states), batch))
        numbers = (batch.ids, batch.types, self._modules.position_ids(batch.ids, batch.positions))
        kept = tuple(None if each is None else each.to(torch.int64).contiguous() for each in numbers)
        addresses = (None if each is None else each.data_ptr() for each in kept)
        return Entered(states, (ctypes.addressof(self._embeddings), *addresses), kept=kept)

    def _compute(self, states: torch.Tensor, batch: Batch) -> tuple[Angles, ...]:
        """Write the states of whole sequences, few tokens at a time, so that intermediate results stay in the cache,
        and small.
        """
        angles: list[list[TorchAngles]] = []
        for start, stop in _spans(batch.cu_seqlens.tolist()):
            some = slice(start, stop)
            types = None if batch.types is None else batch.types[some]
            entered, turns = self._modules(
                replace(batch, ids=batch.ids[some], positions=batch.positions[some], types=types)
            )
            states[some] = entered
            angles.append(turns)
        cosines_and_sines = [zip(*kind, strict=True) for kind in zip(*angles, strict=True)]
        joined = ((torch.cat(cosine), torch.cat(sine)) for cosine, sine in cosines_and_sines)
        return tuple(
            (cosine.float().contiguous().numpy(), sine.float().contiguous().numpy()) for cosine, sine in joined
        )


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

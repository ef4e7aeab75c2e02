"""The runner of DeBERTa v2 and v3 on CPUs: sequences of any lengths together, nothing padded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from sie_text.architectures import DEBERTA

from sie_core.contracts import preemption_point
from sie_pytorch.forward.deberta.layer import DebertaLayer, Tables
from sie_pytorch.forward.deberta.positions import RelativePositions
from sie_pytorch.forward.layout import Run, runs_of
from sie_pytorch.forward.loop.entry import EncoderEntry
from sie_pytorch.forward.loop.linear import require_prepacking, row_count
from sie_pytorch.forward.loop.stack import LayerStack
from sie_pytorch.forward.lora.low_rank import joined_part
from sie_pytorch.forward.protocol import Batch, LowRank, RunnerContext, RunnerUnfitError, weight_bytes
from sie_pytorch.forward.sharing import shares

LAYERS = DEBERTA.layers


@dataclass(frozen=True, slots=True)
class _Share:
    """Some sequences of a batch, concatenated."""

    tokens: torch.Tensor
    """The numbers of their tokens in the batch."""
    runs: tuple[Run, ...]


class PackedDeberta:
    """Runs DeBERTa's layers over packed sequences, in shares of about equally many tokens, a thread each."""

    def __init__(self, context: RunnerContext) -> None:
        """Pack the weights of `context.model`.

        Raises:
            RunnerUnfitError: It is of another kind, or PyTorch lacks the operators.
        """
        require_prepacking()
        model: Any = context.model
        positions = RelativePositions(model)
        stack = LayerStack(model, context.layers, context.features)
        encoder = model.encoder
        context.cast(model.embeddings)
        self._entry = EncoderEntry(model, DEBERTA)
        self._layers = [_taken(layer, positions, context) for layer in encoder.layer]
        self.linear_shapes = self._entry.linear_shapes | stack.linear_shapes() | positions.linear_shapes
        weights = sum(weight.numel() for weight in encoder.layer.parameters()) * context.dtype.itemsize
        tables = positions.embeddings.nbytes + sum(layer.tables.nbytes for layer in self._layers)
        self.memory_bytes = weight_bytes(self._entry.embeddings) + weights + tables
        self._tables: WeakKeyDictionary[LowRank, list[Tables]] = WeakKeyDictionary()
        self._threads = context.threads
        # One product of a share is too small to be divided among threads.
        self._pool = ThreadPoolExecutor(context.threads, "sie-deberta", torch.set_num_threads, (1,))

    def pack_low_rank(self, low_rank: LowRank) -> int:
        """Make the position tables that factors change; see `LowRankPacker.pack_low_rank`."""
        made = self._tables_of(low_rank)
        own = {id(table) for layer in self._layers for table in (layer.tables.keys, layer.tables.queries)}
        return sum(each.nbytes for tables in made for each in (tables.keys, tables.queries) if id(each) not in own)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`.

        Raises:
            RunnerUnfitError: Some tokens are no keys: DeBERTa's class does not support such tokens.
        """
        if batch.key_lengths is not None:
            raise RunnerUnfitError("it does not run tokens that nothing attends to")
        states, _ = self._entry(batch)
        parts = _split(batch.cu_seqlens, self._threads)
        found = [states[part.tokens] for part in parts]
        point = preemption_point()
        every = range(len(self._layers))
        for layers in [every] if point is None else [range(number, number + 1) for number in every]:
            if layers.start and point is not None:
                point()
            run = partial(self._run, layers, batch.low_rank)
            if len(parts) == 1:
                found = [run(parts[0], found[0])]
            else:
                # The longest first: the thread that finishes last then has little left.
                found = [*self._pool.map(run, reversed(parts), reversed(found))][::-1]
        result = torch.empty_like(states)
        for part, each in zip(parts, found, strict=True):
            result[part.tokens] = each
        return result

    @torch.inference_mode()
    def _run(self, layers: range, low_rank: LowRank | None, share: _Share, entered: torch.Tensor) -> torch.Tensor:
        total = len(entered)
        states = F.pad(entered, (0, 0, 0, row_count(total) - total))
        tables = None if low_rank is None else self._tables_of(low_rank)
        for number in layers:
            layer = self._layers[number]
            lora = partial(joined_part, low_rank, f"{LAYERS}.{number}", self.linear_shapes)
            states = layer(states, share.runs, layer.tables if tables is None else tables[number], lora)
        return states[:total]

    def _tables_of(self, low_rank: LowRank) -> list[Tables]:
        made = self._tables.get(low_rank)
        if made is None:
            layers = enumerate(self._layers)
            made = [layer.tables_with(low_rank, f"{LAYERS}.{number}") for number, layer in layers]
            self._tables[low_rank] = made
        return made


def _split(cu_seqlens: torch.Tensor, threads: int) -> list[_Share]:
    bounds = cu_seqlens.tolist()
    spans = list(pairwise(bounds))
    found = []
    for numbers in shares([stop - start for start, stop in spans], threads):
        tokens = torch.cat([torch.arange(*spans[number]) for number in numbers])
        lengths = torch.tensor([0, *(spans[number][1] - spans[number][0] for number in numbers)])
        found.append(_Share(tokens, runs_of(lengths.cumsum(0))))
    return found


def _taken(layer: torch.nn.Module, positions: RelativePositions, context: RunnerContext) -> DebertaLayer:
    """Pack one layer, and release its weights."""
    for norm in layer.modules():
        if isinstance(norm, torch.nn.LayerNorm):
            context.cast(norm)
    packed = DebertaLayer(layer, positions, context.dtype)
    context.mapped.release(layer.parameters())
    return packed

"""The kernel runner: all layers of a described model in one call to compiled code.

It takes embeddings and rotary angles from the model's own modules, and the layers' weights by the record
of its type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import pointer
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from sie_pytorch.forward import (
    EncoderEntry,
    LayerStack,
    LowRank,
    RelativePositions,
    RunnerContext,
    RunnerUnfitError,
    weight_bytes,
)
from sie_text.architectures import PreNorm

from sie_core.contracts import preemption_point
from sie_cpu.entry import NOTHING, Entry, Span, spans
from sie_cpu.kernels import ACTIVATIONS, STAGES, kernels_for
from sie_cpu.packing import Packer, round_up
from sie_cpu.structures import DistanceColumns, Encoder, Layer, LayerLowRank, Norm

T = TypeVar("T")

PRODUCTS_AT_ONCE = 1 << 29
"""Approximate multiply-adds between two preemption points: 1 to 2 ms of MiniLM."""
LEAST_AT_ONCE = 96
"""Tokens of a thread between two such points: fewer would not pay for reading the weights."""
WORKSPACE_KEPT = 16 << 20
"""Bytes of working memory kept between calls: enough for all but very long texts."""


class KernelRunner:
    """Runs the layers of a described model in the compiled kernels."""

    def __init__(self, context: RunnerContext) -> None:
        """Pack the weights of `context.model`.

        Raises:
            RunnerUnfitError: The model does not match its record, or no build of the kernels runs here.
        """
        model = context.model
        try:
            self._stack = stack = LayerStack(model, context.layers, context.features)
            self._kernels = kernels_for(str(context.dtype).removeprefix("torch."))
            self._positions = RelativePositions(model) if stack.row.disentangled else None
            self._entry = EncoderEntry(model, stack.row)
            if self._entry.projection is not None:  # everything before the layers is in float32
                replace(context, dtype=torch.float32).cast(self._entry.projection)
            self.linear_shapes = {**self._entry.linear_shapes, **stack.linear_shapes()}
            if self._positions is not None:
                self.linear_shapes |= self._positions.linear_shapes
            packer = Packer(self._kernels, stack, context.mapped)
            norms = list(stack.norms())
            layers = [packer.layer(*pair, self._positions) for pair in zip(stack.modules, norms, strict=True)]
            first_norm = packer.norm(norms[0].before)
            distances = DistanceColumns() if self._positions is None else packer.distances(self._positions)
        except OSError as error:
            raise RunnerUnfitError(str(error)) from error
        except AttributeError as error:
            raise RunnerUnfitError(f"its layers are not those of its record: {error}") from error
        hidden: int = model.config.hidden_size
        self._enter = Entry(self._entry, hidden)
        self._layers = (Layer * len(layers))(*layers)
        for layer, angles in zip(self._layers, self._entry.angles_of(stack.kinds()), strict=True):
            layer.angles = angles
        whole = partial(
            Encoder,
            hidden=hidden,
            heads=stack.heads,
            key_heads=stack.key_heads,
            head_size=stack.head_size,
            head_width=round_up(stack.head_size, self._kernels.lanes),
            activation=ACTIVATIONS[stack.activation],
            gated=stack.row.gated,
            causal=stack.causal,
            rms=stack.row.norm != "layer",
            pre_norm=isinstance(stack.row.norms, PreNorm),
            distances=distances,
            norm_epsilon=packer.epsilon,
            scale=stack.scale,
        )
        self._encoder = whole(layers=self._layers, layer_count=len(layers), entry=first_norm)
        # Each layer separately. If normalised states enter products only, the residual sum is carried between two
        # calls, and the norm after one layer serves as the norm before the next.
        self._apart_layers = type(self._layers)(*self._layers)
        entries = [first_norm, *(Norm() for _ in layers[1:])]
        if self._encoder.pre_norm:
            entries[1:] = [layer.output for layer in self._layers[:-1]]
            for layer in self._apart_layers[:-1]:
                layer.output = Norm()
        self._apart = [
            whole(layers=pointer(layer), layer_count=1, entry=entry)
            for layer, entry in zip(self._apart_layers, entries, strict=True)
        ]
        self.notes = {"kernels": self._kernels.name}
        self._weights = packer.memory
        self.memory_bytes = weight_bytes(self._entry.embeddings) + sum(part.nbytes for part in packer.memory)
        self._low_ranks: WeakKeyDictionary[LowRank, _PackedLowRank] = WeakKeyDictionary()
        self._threads = context.threads
        self._products = sum(rows * columns for rows, columns in stack.linear_shapes().values()) // len(layers)
        """Multiply-adds of one token with the weights of one layer."""
        self._workspace = torch.empty(0, dtype=torch.uint8)
        self._stopwatch: ctypes.Array[ctypes.c_int64] | None = None

    def start_stopwatch(self) -> Callable[[], tuple[dict[str, float], float]]:
        """Time the kernels from now on.

        Returns:
            A function that stops it and gives the seconds of each stage, summed over the threads, and of the calls.
        """
        spent = self._stopwatch = (ctypes.c_int64 * (len(STAGES) + 1))()

        def stop() -> tuple[dict[str, float], float]:
            self._stopwatch = None
            *stages, called = (nanoseconds / 1e9 for nanoseconds in spent)
            return dict(zip(STAGES, stages, strict=True)), called

        return stop

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        low_rank: LowRank | None = None,
        key_lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute the last hidden states, in float32; see `Runner.forward`.

        Raises:
            MemoryError: No memory is left for the plan of the batch.
            RunnerUnfitError: Some tokens are no keys: DeBERTa's class does not support such tokens.
        """
        if key_lengths is not None and self._positions is not None:
            raise RunnerUnfitError("it does not run tokens of DeBERTa that nothing attends to")
        entered = self._enter(ids, positions, segment_ids, cu_seqlens, low_rank)
        offsets = cu_seqlens.to(torch.int64).contiguous()
        keys = None if key_lengths is None else key_lengths.to(torch.int64).contiguous()
        factors = None if low_rank is None else self._packed(low_rank)
        self._set_windows()
        point = preemption_point()
        if point is None:
            self._run(self._encoder, 0, entered.span(offsets, keys), factors)
            return entered.states
        at_once = max(LEAST_AT_ONCE * self._threads, PRODUCTS_AT_ONCE // self._products)
        apart = [entered.span(offsets, keys, *each) for each in spans(offsets.tolist(), at_once, self._threads)]
        for place, ((number, part), span) in enumerate(product(enumerate(self._apart), apart)):
            if place:
                point()
            self._run(part, number, span, factors)
        return entered.states

    def _run(self, part: Encoder, number: int, span: Span, factors: _PackedLowRank | None) -> None:
        """Run sequences through the layers of `part`; `number` is the index of the first."""
        self._encode(
            ctypes.addressof(part),
            *(NOTHING if number else span.tokens),
            span.states,
            span.offsets.data_ptr(),
            None if span.keys is None else span.keys.data_ptr(),
            len(span.offsets) - 1,
            span.angles,
            None if factors is None else ctypes.addressof(factors.layers[number]),
            0 if factors is None else factors.widest,
            self._threads,
            self._stopwatch,
        )

    def _encode(self, *arguments: Any) -> None:
        """Call the kernels, again with a larger workspace if they ask for one."""
        workspace = self._workspace
        wanted = self._kernels.encode(*arguments, workspace.data_ptr(), len(workspace))
        if wanted:
            workspace = torch.empty(wanted, dtype=torch.uint8)
            if wanted <= WORKSPACE_KEPT:
                self._workspace = workspace
            self._kernels.encode(*arguments, workspace.data_ptr(), wanted)

    def _set_windows(self) -> None:
        """Read the windows, which the proof at load narrows temporarily."""
        for layer, apart, window in zip(self._layers, self._apart_layers, self._stack.windows(), strict=True):
            layer.window = apart.window = window or 0

    def pack_low_rank(self, low_rank: LowRank) -> int:
        """Pack factors ahead of the first batch with them; see `LowRankPacker`."""
        return sum(part.nbytes for part in self._packed(low_rank).memory)

    def _packed(self, low_rank: LowRank) -> _PackedLowRank:
        """Pack factors once, for as long as they live."""
        packed = self._low_ranks.get(low_rank)
        if packed is None:
            packer = Packer(self._kernels, self._stack)
            layers = []
            for number, module in enumerate(self._stack.modules):
                prefix = f"{self._stack.row.layers}.{number}."
                factors = _within(low_rank.factors, prefix)
                layer = packer.layer_low_rank(factors, _within(self.linear_shapes, prefix))
                if self._positions is not None and not factors.keys().isdisjoint(self._positions.names):
                    tables = packer.position_tables(*self._positions.projected(module, factors))
                    layer.position_keys, layer.position_queries = tables
                layers.append(layer)
            packed = _PackedLowRank((LayerLowRank * len(layers))(*layers), packer.widest, packer.memory)
            self._low_ranks[low_rank] = packed
        return packed


@dataclass(frozen=True, slots=True)
class _PackedLowRank:
    """Low-rank factors in the kernels' form, and their memory."""

    layers: ctypes.Array[LayerLowRank]
    widest: int
    memory: list[torch.Tensor]


def _within(mapping: Mapping[str, T], prefix: str) -> dict[str, T]:
    return {name.removeprefix(prefix): value for name, value in mapping.items() if name.startswith(prefix)}

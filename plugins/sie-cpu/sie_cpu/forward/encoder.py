"""All layers of a model in one call to compiled code: its structures, packed once, and the calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import pointer
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from sie_text.architectures import PreNorm

from sie_core.contracts import preemption_point
from sie_cpu.forward.batch import NOTHING, Entered, Floats, Ids, Span, spans
from sie_cpu.kernels import ACTIVATIONS, STAGES, Kernels
from sie_cpu.packing import Factors, LayerParts, Memory, NormNumbers, Packer, Positions, Stack, round_up
from sie_cpu.structures import DistanceBiases, DistanceColumns, Encoder, Layer, LayerLowRank, Norm

T = TypeVar("T")

PRODUCTS_AT_ONCE = 1 << 29
"""Approximate multiply-adds between two preemption points: 1 to 2 ms of MiniLM."""
LEAST_AT_ONCE = 96
"""Tokens of a thread between two such points: fewer would not pay for reading the weights."""
WORKSPACE_KEPT = 16 << 20
"""Bytes of working memory kept between calls: enough for all but very long texts."""


class EncoderStack(Stack, Protocol):
    """The numbers that all layers of a model share."""

    @property
    def scale(self) -> float:
        """Factor of the attention scores."""

    @property
    def causal(self) -> bool:
        """Whether a token sees only those before it, and itself."""

    @property
    def activation(self) -> str:
        """transformers' name of the activation."""


class Adapter(Protocol):
    """A LoRA adapter: low-rank factors by the dotted names of linear layers below the model."""

    @property
    def factors(self) -> Mapping[str, Factors]:
        """The factors."""


class KernelEncoder:
    """The layers of a model, packed."""

    def __init__(
        self,
        kernels: Kernels,
        stack: EncoderStack,
        hidden: int,
        layers: Iterable[LayerParts],
        before: NormNumbers | None,
        *,
        angles: Sequence[int],
        positions: Positions | None = None,
        biases: Floats | None = None,
        threads: int = 1,
    ) -> None:
        """Pack the layers, one after another.

        Args:
            kernels: The build that runs them.
            stack: What they share.
            hidden: Elements of a state.
            layers: Their weights; each is packed before the next is asked for.
            before: Norm of the first layer's input; None for none.
            angles: Which angles each layer has, by their place in `Entered.angles`.
            positions: Relative positions, if attention is disentangled.
            biases: Added to the attention scores by the place of the key minus that of the query, those beyond the ends
                as at the ends: float32 `[heads, 2 * farthest + 1]`.
            threads: CPU threads of a call.

        Raises:
            UnfitError: The layers are not those that the kernels read.
        """
        self._kernels, self._stack, self._threads = kernels, stack, threads
        packer = Packer(kernels, stack)
        packed = []
        self._products = 0
        """Multiply-adds of one token with the weights of one layer."""
        for parts in layers:
            packed.append(packer.layer(parts))
            linear = (*parts.joined, parts.attention_output, *parts.up, parts.down)
            self._products = sum(each.weight.shape[0] * each.weight.shape[1] for each in linear)
        first_norm = packer.norm(before)
        distances = DistanceColumns() if positions is None else packer.distances(positions)
        self._layers = (Layer * len(packed))(*packed)
        for layer, place in zip(self._layers, angles, strict=True):
            layer.angles = place
        whole = partial(
            Encoder,
            hidden=hidden,
            heads=stack.heads,
            key_heads=stack.key_heads,
            head_size=stack.head_size,
            head_width=round_up(stack.head_size, kernels.lanes),
            activation=ACTIVATIONS[stack.activation],
            gated=stack.row.gated,
            causal=stack.causal,
            rms=stack.row.norm != "layer",
            pre_norm=isinstance(stack.row.norms, PreNorm),
            distances=distances,
            biases=DistanceBiases() if biases is None else packer.biases(biases, stack.scale),
            norm_epsilon=packer.epsilon,
            scale=stack.scale,
        )
        self._encoder = whole(layers=self._layers, layer_count=len(packed), entry=first_norm)
        # Each layer separately. If normalised states enter products only, the residual sum is carried between two
        # calls, and the norm after one layer serves as the norm before the next.
        self._apart_layers = type(self._layers)(*self._layers)
        entries = [first_norm, *(Norm() for _ in packed[1:])]
        if self._encoder.pre_norm:
            entries[1:] = [layer.output for layer in self._layers[:-1]]
            for layer in self._apart_layers[:-1]:
                layer.output = Norm()
        self._apart = [
            whole(layers=pointer(layer), layer_count=1, entry=entry)
            for layer, entry in zip(self._apart_layers, entries, strict=True)
        ]
        self._weights = packer.memory
        self.memory_bytes = sum(part.nbytes for part in packer.memory)
        """Bytes of the packed weights."""
        self._low_ranks: WeakKeyDictionary[Any, PackedLowRank] = WeakKeyDictionary()
        self._workspace: Memory = np.empty(0, dtype=np.uint8)
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

    def run(
        self,
        entered: Entered,
        offsets: Ids,
        keys: Ids | None,
        windows: Sequence[int | None],
        factors: PackedLowRank | None = None,
    ) -> Floats:
        """Compute the last hidden states, float32 `[tokens, hidden]`: those of `entered`, written over.

        Args:
            entered: The batch before the first layer.
            offsets: Start of each sequence, and the end of the last one, int64 `[sequences + 1]`, contiguous.
            keys: Number of key tokens of each sequence, int64 `[sequences]`, contiguous; None for all.
            windows: The attention window of each layer; None for no limit.
            factors: A LoRA adapter, of `packed`.

        Raises:
            MemoryError: No memory is left for the plan of the batch.
        """
        for layer, apart, window in zip(self._layers, self._apart_layers, windows, strict=True):
            layer.window = apart.window = window or 0
        point = preemption_point()
        if point is None:
            self._run(self._encoder, 0, entered.span(offsets, keys), factors)
            return entered.states
        at_once = max(LEAST_AT_ONCE * self._threads, PRODUCTS_AT_ONCE // self._products)
        apart_spans = [entered.span(offsets, keys, *each) for each in spans(offsets.tolist(), at_once, self._threads)]
        for place, ((number, part), span) in enumerate(product(enumerate(self._apart), apart_spans)):
            if place:
                point()
            self._run(part, number, span, factors)
        return entered.states

    def _run(self, part: Encoder, number: int, span: Span, factors: PackedLowRank | None) -> None:
        """Run sequences through the layers of `part`; `number` is the index of the first."""
        self._encode(
            ctypes.addressof(part),
            *(NOTHING if number else span.tokens),
            span.states,
            span.offsets.ctypes.data,
            None if span.keys is None else span.keys.ctypes.data,
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
        wanted = self._kernels.encode(*arguments, workspace.ctypes.data, len(workspace))
        if wanted:
            workspace = np.empty(wanted, dtype=np.uint8)
            if wanted <= WORKSPACE_KEPT:
                self._workspace = workspace
            self._kernels.encode(*arguments, workspace.ctypes.data, wanted)

    def packed(
        self,
        adapter: Adapter,
        shapes: Mapping[str, tuple[int, int]],
        tables: Callable[[int, Mapping[str, Factors]], tuple[Floats, Floats] | None] = lambda number, factors: None,
    ) -> PackedLowRank:
        """Pack factors once, for as long as they live.

        Args:
            adapter: The factors.
            shapes: The linear layers of the model: out and in, by dotted name.
            tables: Makes the keys and queries of relative positions of a layer by factors, named below the layer; None
                if these change none.
        """
        found = self._low_ranks.get(adapter)
        if found is None:
            packer = Packer(self._kernels, self._stack)
            layers = []
            for number in range(len(self._layers)):
                prefix = f"{self._stack.row.layers}.{number}."
                factors = within(adapter.factors, prefix)
                layer = packer.layer_low_rank(factors, within(shapes, prefix))
                changed = tables(number, factors)
                if changed is not None:
                    layer.position_keys, layer.position_queries = packer.position_tables(*changed)
                layers.append(layer)
            found = PackedLowRank((LayerLowRank * len(layers))(*layers), packer.widest, packer.memory)
            self._low_ranks[adapter] = found
        return found


@dataclass(frozen=True, slots=True)
class PackedLowRank:
    """Low-rank factors in the kernels' form, and their memory."""

    layers: ctypes.Array[LayerLowRank]
    widest: int
    memory: list[Memory]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(part.nbytes for part in self.memory)


def within(mapping: Mapping[str, T], prefix: str) -> dict[str, T]:
    """Return what is below `prefix`, by the rest of its name."""
    return {name.removeprefix(prefix): value for name, value in mapping.items() if name.startswith(prefix)}

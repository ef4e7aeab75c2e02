"""Converts a model's layers to the structures the kernels read: weights joined, padded and laid out in panels."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sie_text.architectures import Layers

from sie_cpu.kernels import Kernels
from sie_cpu.structures import DistanceBiases, DistanceColumns, Layer, LayerLowRank, LowRankMatrix, Matrix, Norm

Floats = NDArray[np.float32]
Memory = NDArray[Any]

OWN_MAPPING = 1 << 18
"""Bytes from which panels are allocated outside the heap."""


def round_up(value: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-value // multiple) * multiple


@dataclass(frozen=True, slots=True)
class Arranged:
    """A weight or bias in the kernels' order; written in place, so that it exists once."""

    shape: tuple[int, ...]
    write: Callable[[Floats], None]
    """Writes it into zeros of `shape`."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A weight or bias that is read in float32 when it is packed, so that one at a time is in memory."""

    shape: tuple[int, ...]
    read: Callable[[slice], Floats]
    """Returns some of its rows."""

    @classmethod
    def of(cls, values: Floats) -> Rows:
        """Take an array that is in memory."""
        return cls(values.shape, lambda rows: values[rows])

    def part(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` to `stop`, exclusive."""
        return Rows((stop - start, *self.shape[1:]), lambda rows: self.read(slice(start, stop))[rows])

    def __len__(self) -> int:
        return self.shape[0]

    def all(self) -> Floats:
        """Read all of it."""
        return self.read(slice(None))


class Dense(NamedTuple):
    """A linear layer."""

    weight: Rows
    """`[out, in]`."""
    bias: Floats | None
    """`[out]`."""


class NormNumbers(NamedTuple):
    """A norm's weight, counted from zero, its bias and its epsilon."""

    weight: Floats
    bias: Floats | None
    epsilon: float


@dataclass(frozen=True, slots=True)
class LayerParts:
    """The weights of one layer; parts are as in `Layers`, norms as in `Layer` of encoder.h."""

    joined: Sequence[Dense]
    attention_output: Dense
    up: Sequence[Dense]
    down: Dense
    attention: NormNumbers
    output: NormNumbers
    post_attention: NormNumbers | None = None
    post_mlp: NormNumbers | None = None
    query_norm: NormNumbers | None = None
    key_norm: NormNumbers | None = None
    positions: tuple[Floats, Floats] | None = None
    """Keys and queries of relative positions, each `[positions, heads * head_size]`."""


class Factors(Protocol):
    """The LoRA update of one linear layer's weight: `upper @ lower`."""

    @property
    def lower(self) -> Any:
        """`[rank, in]`."""

    @property
    def upper(self) -> Any:
        """`[out, rank]`."""


class Stack(Protocol):
    """The sizes of a model's layers that determine the layout."""

    @property
    def row(self) -> Layers:
        """The record."""

    @property
    def heads(self) -> int:
        """Heads of queries."""

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""

    @property
    def head_size(self) -> int:
        """Elements of a head."""


class UnfitError(Exception):
    """The layers are not those that the kernels read; the message says why."""


class Packer:
    """Lays out weights and keeps their memory.

    Rows and columns are arranged the same way for a weight and for its LoRA factors.
    """

    def __init__(self, kernels: Kernels, stack: Stack) -> None:
        """Keep the sizes that determine the layout.

        Args:
            kernels: The build that reads the weights.
            stack: The layers.
        """
        self.memory: list[Memory] = []
        self.widest = 0
        """Columns of the widest low-rank product packed, padded to a panel."""
        self.epsilon: float | None = None
        """Shared by every packed norm."""
        self._kernels = kernels
        self._stack = stack
        self._row = stack.row
        self._scratch: Floats = np.empty(0, dtype=np.float32)
        self._sizes: tuple[int, int] | None = None
        self._order = _paired_in_halves(stack)

    def layer(self, parts: LayerParts) -> Layer:
        """Pack one layer, which sees everything and has the first kind of angles.

        Raises:
            UnfitError: A part does not match the row.
        """
        self._require_sizes(parts)

        def weights(layers: Sequence[Dense]) -> list[Rows]:
            return [each.weight for each in layers]

        def biases(layers: Sequence[Dense]) -> list[Rows]:
            return [_bias(each) for each in layers]

        packed = Layer(
            self._matrix(self._join(weights(parts.joined)), self._join(biases(parts.joined))),
            self._matrix(self._from_heads(parts.attention_output.weight), _plain(_bias(parts.attention_output))),
            self._matrix(self._beside(weights(parts.up)), self._beside(biases(parts.up))),
            self._matrix(self._from_inner(parts.down.weight), _plain(_bias(parts.down))),
            *(self.norm(each) for each in (parts.attention, parts.output, parts.post_attention, parts.post_mlp)),
            *(self._head_norm(each) for each in (parts.query_norm, parts.key_norm)),
        )
        if parts.positions is not None:
            packed.position_keys, packed.position_queries = self.position_tables(*parts.positions)
        return packed

    def _require_sizes(self, parts: LayerParts) -> None:
        """Refuse sizes that the kernels do not support: they assume the first layer's sizes for all, without a check.

        Raises:
            UnfitError: Sizes are inconsistent with each other, or with the layers before.
        """
        joined, ups = ([each.weight.shape for each in layers] for layers in (parts.joined, parts.up))
        output, down = parts.attention_output.weight.shape, parts.down.weight.shape
        stack, hidden, inner = self._stack, joined[0][1], down[1]
        widths = [count * stack.head_size for count in (stack.heads, stack.key_heads, stack.key_heads)]
        fits = [
            [outputs for outputs, _ in joined] == (widths if len(joined) > 1 else [sum(widths)]),
            all(inputs == hidden for _, inputs in (*joined, *ups)),
            all(outputs == inner * (1 + self._row.gated) // len(ups) for outputs, _ in ups),
            output == (hidden, widths[0]),
            down[0] == hidden,
            self._sizes in (None, (hidden, inner)),
        ]
        if not all(fits):
            raise UnfitError("the sizes of its layers do not fit each other")
        self._sizes = (hidden, inner)

    def norm(self, numbers: NormNumbers | None) -> Norm:
        """Pack a norm of the states; None for no norm.

        Raises:
            UnfitError: It is of another size or epsilon than those before.
        """
        if numbers is None:
            return Norm()
        if self._sizes is not None and numbers.weight.shape != self._sizes[:1]:
            raise UnfitError("the sizes of its norms do not fit those of its layers")
        self._keep_epsilon(numbers.epsilon)
        bias = numbers.bias
        if bias is None and self._row.norm == "layer":
            bias = np.zeros(len(numbers.weight), dtype=np.float32)
        return Norm(*(None if each is None else self._keep(_copy(each)) for each in (numbers.weight, bias)))

    def _head_norm(self, numbers: NormNumbers | None) -> int | None:
        """Pack a norm of queries or keys, padded and in the order of a head's elements."""
        if numbers is None:
            return None
        if numbers.weight.shape != (self._stack.head_size,):
            raise UnfitError("the sizes of its norms do not fit those of its heads")
        self._keep_epsilon(numbers.epsilon)
        padding = round_up(self._stack.head_size, self._kernels.lanes) - self._stack.head_size
        return self._keep(np.pad(_copy(numbers.weight)[self._order], (0, padding)))

    def _keep_epsilon(self, epsilon: float) -> None:
        if self.epsilon not in (None, epsilon):
            raise UnfitError(f"its norms have different epsilons, {self.epsilon} and {epsilon}")
        self.epsilon = epsilon

    def layer_low_rank(self, factors: Mapping[str, Factors], shapes: Mapping[str, tuple[int, int]]) -> LayerLowRank:
        """Pack the LoRA delta of one layer; names and shapes (out, in) are relative to the layer."""
        row = self._row
        lowers, uppers = _blocks(row.joined, factors, shapes)
        joined = self._low_rank(_plain(lowers), self._join(uppers))
        lowers, uppers = _blocks([row.attention_output], factors, shapes)
        output = self._low_rank(self._from_heads(lowers), _plain(uppers[0]))
        lowers, uppers = _blocks(row.up, factors, shapes)
        up = self._low_rank(_plain(lowers), self._beside(uppers))
        lowers, uppers = _blocks([row.down], factors, shapes)
        return LayerLowRank(joined, output, up, self._low_rank(self._from_inner(lowers), _plain(uppers[0])))

    def distances(self, positions: Positions) -> DistanceColumns:
        """Map distances to columns of the tables.

        Raises:
            UnfitError: It needs more columns than those of the distances up to `farthest`.
        """
        found = positions.distances
        if not found.bounded:
            raise UnfitError(f"distances beyond {found.farthest} have relative positions of their own")
        columns = np.ascontiguousarray(found.rows(found.farthest + 1), dtype=np.int32)
        return DistanceColumns(
            self._keep(columns), found.farthest, found.own, round_up(positions.count, self._kernels.panel)
        )

    def biases(self, by_distance: Floats, scale: float) -> DistanceBiases:
        """Pack biases of distances, `[heads, 2 * farthest + 1]`, divided by the scale: the kernels scale the sum.

        Raises:
            UnfitError: They are of another number of heads.
        """
        if len(by_distance) != self._stack.heads:
            raise UnfitError(f"its {self._stack.heads} heads have {len(by_distance)} rows of biases")
        numbers = np.ascontiguousarray(by_distance / np.float32(scale), dtype=np.float32)
        return DistanceBiases(self._keep(numbers), by_distance.shape[1] // 2)

    def position_tables(self, keys: Floats, queries: Floats) -> tuple[int, int]:
        """Pack the keys and the queries of relative positions, each `[positions, heads * head_size]`; keys in reverse
        order.
        """
        return self._position_table(keys[::-1], at_end=True), self._position_table(queries, at_end=False)

    def _position_table(self, rows: Floats, *, at_end: bool) -> int:
        heads, size = self._stack.heads, self._stack.head_size
        count = round_up(len(rows), self._kernels.panel)
        first = count - len(rows) if at_end else 0

        def write(into: Floats) -> None:
            by_head = rows.reshape(len(rows), heads, size).swapaxes(0, 1)
            _split(into, heads, count)[:, first : first + len(rows), :size] = by_head

        panels, _, _ = self._panels(Arranged((heads * count, round_up(size, self._kernels.lanes)), write))
        return panels

    def _join(self, parts: Sequence[Rows]) -> Arranged:
        """Stack the rows of queries, keys and values, each head padded to whole vectors."""
        if len(parts) == 1:
            size, stack = self._stack.head_size, self._stack
            queries, keys = stack.heads * size, (stack.heads + stack.key_heads) * size
            whole = parts[0]
            parts = [whole.part(0, queries), whole.part(queries, keys), whole.part(keys, len(whole))]
        query, key, value = parts
        spread = [self._by_head(query, self._order), self._by_head(key, self._order), self._by_head(value)]

        def write(into: Floats) -> None:
            start = 0
            for each in spread:
                each.write(into[start : start + each.shape[0]])
                start += each.shape[0]

        return Arranged((sum(each.shape[0] for each in spread), *spread[0].shape[1:]), write)

    def _from_heads(self, weight: Rows) -> Arranged:
        """Pad the columns that read the heads as the heads are padded."""
        width = self._stack.head_size
        heads = weight.shape[1] // width
        padded = round_up(width, self._kernels.lanes)

        def write(into: Floats) -> None:
            into.reshape(len(weight), heads, padded)[:, :, :width] = weight.all().reshape(len(weight), heads, width)

        return Arranged((len(weight), heads * padded), write)

    def _by_head(self, rows: Rows, order: NDArray[np.int64] | slice = slice(None)) -> Arranged:
        width = self._stack.head_size
        heads = len(rows) // width

        def write(into: Floats) -> None:
            _split(into, heads, -1)[:, :width] = _split(rows.all(), heads, width)[:, order]

        return Arranged((heads * round_up(width, self._kernels.lanes), *rows.shape[1:]), write)

    def _beside(self, parts: Sequence[Rows]) -> Arranged:
        """Arrange the rows of the up-projection; a gate's rows are next to those they multiply, half a panel each."""
        if not self._row.gated:
            return _plain(parts[0])
        if len(parts) == 1:
            half = len(parts[0]) // 2
            parts = [parts[0].part(half, 2 * half), parts[0].part(0, half)]
        half = self._kernels.panel // 2
        whole, rest = divmod(len(parts[0]), half)

        def write(into: Floats) -> None:
            blocks = _split(into, -1, 2, half)
            for place, part in enumerate(parts):
                numbers = part.all()
                blocks[:whole, place] = _split(numbers[: whole * half], whole, half)
                if rest:
                    blocks[whole, place, :rest] = numbers[whole * half :]

        return Arranged((2 * round_up(len(parts[0]), half), *parts[0].shape[1:]), write)

    def _from_inner(self, weight: Rows) -> Arranged:
        """Pad the columns that read the widened states as those are padded."""
        inner = round_up(weight.shape[1], self._kernels.panel // 2 if self._row.gated else self._kernels.panel)

        def write(into: Floats) -> None:
            into[:, : weight.shape[1]] = weight.all()

        return Arranged((len(weight), inner), write)

    def _matrix(self, weight: Arranged, bias: Arranged) -> Matrix:
        """Pack `weight`, `[columns, inner]`."""
        panels, columns, inner = self._panels(weight)
        numbers = np.zeros(columns, dtype=np.float32)
        bias.write(numbers[: bias.shape[0]])
        return Matrix(panels, self._keep(numbers), inner, columns)

    def _low_rank(self, lower: Arranged, upper: Arranged) -> LowRankMatrix:
        if not lower.shape[0]:
            return LowRankMatrix()
        matrix = self._matrix(lower, _plain(Rows.of(np.zeros(0, dtype=np.float32))))
        self.widest = max(self.widest, matrix.columns)
        panels, _, rank = self._panels(upper)
        return LowRankMatrix(matrix, panels, rank)

    def _panels(self, weight: Arranged) -> tuple[int, int, int]:
        """Lay out `[columns, inner]`; return the address, and both sizes padded."""
        columns = round_up(weight.shape[0], self._kernels.panel)
        inner = round_up(weight.shape[1], self._kernels.step)
        if columns * inner > len(self._scratch):
            self._scratch = _memory(4 * columns * inner).view(np.float32)
        source = self._scratch[: columns * inner].reshape(columns, inner)
        source.fill(0)
        weight.write(source[: weight.shape[0], : weight.shape[1]])
        panels = _memory(columns * inner * self._kernels.weight_bytes)
        self._kernels.pack(source.ctypes.data, columns, inner, panels.ctypes.data)
        return self._keep(panels), columns, inner

    def _keep(self, memory: Memory) -> int:
        self.memory.append(memory)
        return memory.ctypes.data


class Positions(Protocol):
    """Relative positions: of DeBERTa, whose distances have rows of a table."""

    @property
    def count(self) -> int:
        """Rows of the table."""

    @property
    def distances(self) -> Any:
        """Which row each distance has: `rows`, `own`, `farthest` and `bounded`, as in `sie_cpu.forward.distances`."""


def _paired_in_halves(stack: Stack) -> NDArray[np.int64] | slice:
    """Return the order of a head's elements that pairs its two halves for rotation, as the kernels expect.

    Queries and keys in one order have the same products as in another, so that no rotation is written twice.
    """
    if stack.row.rotary != "interleaved":
        return slice(None)
    return np.arange(stack.head_size).reshape(-1, 2).T.ravel()


def _memory(size: int) -> Memory:
    """Allocate bytes: many outside the heap, few, as of low-rank factors, within.

    glibc up to 2.37 reuses few of the holes that aligned blocks leave: weights that are rearranged one by one in the
    heap leave their size again in holes.

    Raises:
        MemoryError: The system has no room.
    """
    if size < OWN_MAPPING or sys.platform == "win32":
        return np.empty(size, dtype=np.uint8)
    try:
        mapping = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes cannot be mapped ({error.strerror}).") from error
    return np.frombuffer(mapping, dtype=np.uint8)


def _split(rows: Floats, *sizes: int) -> Floats:
    return rows.reshape(*sizes, *rows.shape[1:])


def _plain(values: Rows) -> Arranged:
    def write(into: Floats) -> None:
        into[:] = values.all()

    return Arranged(values.shape, write)


def _blocks(
    names: Sequence[str], factors: Mapping[str, Factors], shapes: Mapping[str, tuple[int, int]]
) -> tuple[Rows, list[Rows]]:
    """Join the factors of layers over one input: lower ones stacked, upper ones each in its own columns."""
    present = [factors.get(name) for name in names]
    ranks = [0 if found is None else len(found.lower) for found in present]
    nothing = np.zeros((0, shapes[names[0]][1]), dtype=np.float32)
    lower = np.concatenate([nothing, *(_copy(found.lower) for found in present if found)])
    uppers, before = [], 0
    for name, found, rank in zip(names, present, ranks, strict=True):
        rows = np.zeros((shapes[name][0], rank), dtype=np.float32) if found is None else _copy(found.upper)
        uppers.append(Rows.of(np.pad(rows, ((0, 0), (before, sum(ranks) - before - rank)))))
        before += rank
    return Rows.of(lower), uppers


def _bias(layer: Dense) -> Rows:
    return Rows.of(np.zeros(len(layer.weight), dtype=np.float32) if layer.bias is None else layer.bias)


def _copy(values: Any) -> Floats:
    return np.array(np.asarray(values), dtype=np.float32)

"""Converts a model's layers to the structures the kernels read: weights joined, padded and laid out in panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sie_pytorch.forward import (
    UNMAPPED,
    Factors,
    LayerNorms,
    LayerStack,
    MappedFiles,
    RelativePositions,
    RunnerUnfitError,
    outside_heap,
    plain_linear,
)

from sie_cpu.kernels import Kernels
from sie_cpu.structures import DistanceColumns, Layer, LayerLowRank, LowRankMatrix, Matrix, Norm

OWN_MAPPING = 1 << 18
"""Bytes from which panels are allocated outside the heap."""


def round_up(value: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-value // multiple) * multiple


@dataclass(frozen=True, slots=True)
class Arranged:
    """A weight or bias in the kernels' order; written in place, so that it exists once."""

    shape: tuple[int, ...]
    write: Callable[[torch.Tensor], None]
    """Writes it into zeros of `shape` and of any precision."""


class Packer:
    """Lays out weights and keeps their memory.

    Rows and columns are arranged the same way for a weight and for what low-rank factors add to it.
    """

    def __init__(self, kernels: Kernels, stack: LayerStack, mapped: MappedFiles = UNMAPPED) -> None:
        """Keep the sizes that determine the layout.

        Args:
            kernels: The build that reads the weights.
            stack: The layers.
            mapped: The files the weights may be views of: the pages of a layer go back once it is packed.
        """
        self.memory: list[torch.Tensor] = []
        self.widest = 0
        """Columns of the widest low-rank product packed, padded to a panel."""
        self.epsilon: float | None = None
        """Shared by every packed norm."""
        self._kernels = kernels
        self._stack = stack
        self._row = stack.row
        self._mapped = mapped
        self._scratch = torch.empty(0)
        self._sizes: tuple[int, int] | None = None
        self._order = _paired_in_halves(stack)

    def layer(self, module: torch.nn.Module, norms: LayerNorms, positions: RelativePositions | None = None) -> Layer:
        """Pack one layer, which sees everything and has the first kind of angles, with its tables of `positions`.

        Raises:
            RunnerUnfitError: A part does not match the row.
        """
        row = self._row
        joined, ups = ([plain_linear(module, name) for name in names] for names in (row.joined, row.up))
        output, down = plain_linear(module, row.attention_output), plain_linear(module, row.down)
        self._require_sizes(joined, output, ups, down)

        def weights(parts: Sequence[torch.nn.Linear]) -> list[torch.Tensor]:
            return [part.weight.detach() for part in parts]

        def biases(parts: Sequence[torch.nn.Linear]) -> list[torch.Tensor]:
            return [_bias(part) for part in parts]

        packed = Layer(
            self._matrix(self._join(weights(joined)), self._join(biases(joined))),
            self._matrix(self._from_heads(output.weight.detach()), _plain(_bias(output))),
            self._matrix(self._beside(weights(ups)), self._beside(biases(ups))),
            self._matrix(self._from_inner(down.weight.detach()), _plain(_bias(down))),
            *(
                self.norm(each)
                for each in (norms.attention, norms.output, norms.post_attention_norm, norms.post_mlp_norm)
            ),
            *(self._head_norm(module, name) for name in (row.query_norm, row.key_norm)),
        )
        if positions is not None:
            packed.position_keys, packed.position_queries = self.position_tables(*positions.projected(module))
        self._mapped.release(module.parameters())
        return packed

    def _require_sizes(
        self,
        joined: Sequence[torch.nn.Linear],
        output: torch.nn.Linear,
        ups: Sequence[torch.nn.Linear],
        down: torch.nn.Linear,
    ) -> None:
        """Refuse sizes that the kernels do not support: they assume the first layer's sizes for all, without a check.

        Raises:
            RunnerUnfitError: Sizes are inconsistent with each other, or with the layers before.
        """
        stack, hidden, inner = self._stack, joined[0].in_features, down.in_features
        widths = [count * stack.head_size for count in (stack.heads, stack.key_heads, stack.key_heads)]
        fits = [
            [part.out_features for part in joined] == (widths if len(joined) > 1 else [sum(widths)]),
            all(part.in_features == hidden for part in (*joined, *ups)),
            all(part.out_features == inner * (1 + self._row.gated) // len(ups) for part in ups),
            output.in_features == widths[0],
            output.out_features == down.out_features == hidden,
            self._sizes in (None, (hidden, inner)),
        ]
        if not all(fits):
            raise RunnerUnfitError("the sizes of its layers do not fit each other")
        self._sizes = (hidden, inner)

    def norm(self, module: torch.nn.Module | None) -> Norm:
        """Pack a norm of the states; None for no norm.

        Raises:
            RunnerUnfitError: It is another norm than the row says, or of another size or epsilon than those before.
        """
        if module is None:
            return Norm()
        numbers = self._stack.numbers(module)
        if self._sizes is not None and numbers.weight.shape != self._sizes[:1]:
            raise RunnerUnfitError("the sizes of its norms do not fit those of its layers")
        self._keep_epsilon(numbers.epsilon)
        bias = numbers.bias
        if bias is None and self._row.norm == "layer":
            bias = torch.zeros(len(numbers.weight))
        return Norm(*(None if each is None else self._keep(each.float().clone()) for each in (numbers.weight, bias)))

    def _head_norm(self, module: torch.nn.Module, name: str | None) -> int | None:
        """Pack a norm of queries or keys, padded and in the order of a head's elements."""
        if name is None:
            return None
        numbers = self._stack.numbers(module.get_submodule(name), of_head=True)
        if numbers.weight.shape != (self._stack.head_size,):
            raise RunnerUnfitError("the sizes of its norms do not fit those of its heads")
        self._keep_epsilon(numbers.epsilon)
        padding = round_up(self._stack.head_size, self._kernels.lanes) - self._stack.head_size
        return self._keep(F.pad(numbers.weight.float()[self._order], (0, padding)))

    def _keep_epsilon(self, epsilon: float) -> None:
        if self.epsilon not in (None, epsilon):
            raise RunnerUnfitError(f"its norms have different epsilons, {self.epsilon} and {epsilon}")
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

    def distances(self, positions: RelativePositions) -> DistanceColumns:
        """Map distances to columns of the tables.

        Raises:
            RunnerUnfitError: It needs more columns than those of the distances up to `farthest`.
        """
        found = positions.distances
        if not found.bounded:
            raise RunnerUnfitError(f"distances beyond {found.farthest} have relative positions of their own")
        columns = found.rows(found.farthest + 1).to(torch.int32)
        return DistanceColumns(
            self._keep(columns), found.farthest, found.own, round_up(len(positions.embeddings), self._kernels.panel)
        )

    def position_tables(self, keys: torch.Tensor, queries: torch.Tensor) -> tuple[int, int]:
        """Pack the keys and the queries of relative positions, each `[positions, heads * head_size]`; keys in reverse
        order.
        """
        return self._position_table(keys.flip(0), at_end=True), self._position_table(queries, at_end=False)

    def _position_table(self, rows: torch.Tensor, *, at_end: bool) -> int:
        heads, size = self._stack.heads, self._stack.head_size
        count = round_up(len(rows), self._kernels.panel)
        first = count - len(rows) if at_end else 0

        def write(into: torch.Tensor) -> None:
            by_head = rows.view(len(rows), heads, size).transpose(0, 1)
            _split(into, heads, count)[:, first : first + len(rows), :size] = by_head

        panels, _, _ = self._panels(Arranged((heads * count, round_up(size, self._kernels.lanes)), write))
        return panels

    def _join(self, parts: Sequence[torch.Tensor]) -> Arranged:
        """Stack the rows of queries, keys and values, each head padded to whole vectors."""
        if len(parts) == 1:
            size, stack = self._stack.head_size, self._stack
            parts = torch.split(parts[0], [stack.heads * size, stack.key_heads * size, stack.key_heads * size])
        query, key, value = parts
        spread = [self._by_head(query, self._order), self._by_head(key, self._order), self._by_head(value)]

        def write(into: torch.Tensor) -> None:
            start = 0
            for each in spread:
                each.write(into[start : start + each.shape[0]])
                start += each.shape[0]

        return Arranged((sum(each.shape[0] for each in spread), *spread[0].shape[1:]), write)

    def _from_heads(self, weight: torch.Tensor) -> Arranged:
        """Pad the columns that read the heads as the heads are padded."""
        spread = self._by_head(weight.T)
        return Arranged((spread.shape[1], spread.shape[0]), lambda into: spread.write(into.T))

    def _by_head(self, rows: torch.Tensor, order: torch.Tensor | slice = slice(None)) -> Arranged:
        width = self._stack.head_size
        heads = len(rows) // width

        def write(into: torch.Tensor) -> None:
            _split(into, heads, -1)[:, :width] = _split(rows, heads, width)[:, order]

        return Arranged((heads * round_up(width, self._kernels.lanes), *rows.shape[1:]), write)

    def _beside(self, parts: Sequence[torch.Tensor]) -> Arranged:
        """Arrange the rows of the up-projection; a gate's rows are next to those they multiply, half a panel each."""
        if not self._row.gated:
            return _plain(parts[0])
        if len(parts) == 1:
            gate, up = parts[0].chunk(2)
            parts = [up, gate]
        half = self._kernels.panel // 2
        whole, rest = divmod(len(parts[0]), half)

        def write(into: torch.Tensor) -> None:
            blocks = _split(into, -1, 2, half)
            for place, part in enumerate(parts):
                blocks[:whole, place] = _split(part[: whole * half], whole, half)
                if rest:
                    blocks[whole, place, :rest] = part[whole * half :]

        return Arranged((2 * round_up(len(parts[0]), half), *parts[0].shape[1:]), write)

    def _from_inner(self, weight: torch.Tensor) -> Arranged:
        """Pad the columns that read the widened states as those are padded."""
        inner = round_up(weight.shape[1], self._kernels.panel // 2 if self._row.gated else self._kernels.panel)

        def write(into: torch.Tensor) -> None:
            into[:, : weight.shape[1]] = weight

        return Arranged((len(weight), inner), write)

    def _matrix(self, weight: Arranged, bias: Arranged) -> Matrix:
        """Pack `weight`, `[columns, inner]`."""
        panels, columns, inner = self._panels(weight)
        numbers = torch.zeros(columns)
        bias.write(numbers[: bias.shape[0]])
        return Matrix(panels, self._keep(numbers), inner, columns)

    def _low_rank(self, lower: Arranged, upper: Arranged) -> LowRankMatrix:
        if not lower.shape[0]:
            return LowRankMatrix()
        matrix = self._matrix(lower, _plain(torch.zeros(0)))
        self.widest = max(self.widest, matrix.columns)
        panels, _, rank = self._panels(upper)
        return LowRankMatrix(matrix, panels, rank)

    def _panels(self, weight: Arranged) -> tuple[int, int, int]:
        """Lay out `[columns, inner]`; return the address, and both sizes padded."""
        columns = round_up(weight.shape[0], self._kernels.panel)
        inner = round_up(weight.shape[1], self._kernels.step)
        if columns * inner > len(self._scratch):
            self._scratch = _memory(4 * columns * inner).view(torch.float32)
        source = self._scratch[: columns * inner].zero_().view(columns, inner)
        weight.write(source[: weight.shape[0], : weight.shape[1]])
        panels = _memory(columns * inner * self._kernels.weight_bytes)
        self._kernels.pack(source.data_ptr(), columns, inner, panels.data_ptr())
        return self._keep(panels), columns, inner

    def _keep(self, memory: torch.Tensor) -> int:
        self.memory.append(memory)
        return memory.data_ptr()


def _paired_in_halves(stack: LayerStack) -> torch.Tensor | slice:
    """Return the order of a head's elements that pairs its two halves for rotation, as the kernels expect.

    Queries and keys in one order have the same products as in another, so that no rotation is written twice.
    """
    if stack.row.rotary != "interleaved":
        return slice(None)
    return torch.arange(stack.head_size).view(-1, 2).T.flatten()


def _memory(size: int) -> torch.Tensor:
    """Allocate bytes: many outside the heap, few, as of low-rank factors, within."""
    return (outside_heap if size >= OWN_MAPPING else torch.empty)((size,), dtype=torch.uint8)


def _split(rows: torch.Tensor, *sizes: int) -> torch.Tensor:
    split: torch.Tensor = rows.unflatten(0, sizes)  # type: ignore[no-untyped-call]
    return split


def _plain(values: torch.Tensor) -> Arranged:
    def write(into: torch.Tensor) -> None:
        into[:] = values

    return Arranged(tuple(values.shape), write)


def _blocks(
    names: Sequence[str], factors: Mapping[str, Factors], shapes: Mapping[str, tuple[int, int]]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Join the factors of layers over one input: lower ones stacked, upper ones each in its own columns."""
    present = [factors.get(name) for name in names]
    ranks = [0 if found is None else len(found.lower) for found in present]
    lower = torch.cat([torch.zeros(0, shapes[names[0]][1]), *(found.lower.float() for found in present if found)])
    uppers, before = [], 0
    for name, found, rank in zip(names, present, ranks, strict=True):
        rows = torch.zeros(shapes[name][0], rank) if found is None else found.upper.float()
        uppers.append(F.pad(rows, (before, sum(ranks) - before - rank)))
        before += rank
    return lower, uppers


def _bias(linear: torch.nn.Linear) -> torch.Tensor:
    return torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach()

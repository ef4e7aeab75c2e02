"""From a model's layers to the structures the kernels read: weights joined, padded and laid out in panels.

It knows the parts of a layer by the names of a `KernelRow`, and no architecture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from sie_pytorch.runners import Factors, RunnerUnfitError

from sie_cpu.kernels import Kernels, Layer, LayerLowRank, LowRankMatrix, Matrix
from sie_cpu.table import KernelRow


def round_up(value: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-value // multiple) * multiple


class Packer:
    """Lays weights out and keeps the memory they lie in.

    Rows and columns are arranged the same way for a weight and for what low-rank factors add to it.
    """

    def __init__(self, kernels: Kernels, row: KernelRow, heads: int) -> None:
        self.memory: list[torch.Tensor] = []
        self.widest = 0
        """Columns of the widest low-rank product packed, padded to a panel."""
        self._kernels = kernels
        self._row = row
        self._heads = heads

    def layer(self, module: torch.nn.Module, output_norm: torch.nn.Module) -> Layer:
        """Pack one layer, which sees everything and has the first kind of angles.

        Raises:
            RunnerUnfitError: A part is not what the row says.
        """
        row = self._row
        joined, ups = ([_linear(module, name) for name in names] for names in (row.joined, row.up))
        output, down = _linear(module, row.attention_output), _linear(module, row.down)

        def weights(parts: Sequence[torch.nn.Linear]) -> list[torch.Tensor]:
            return [_weight(part) for part in parts]

        def biases(parts: Sequence[torch.nn.Linear]) -> list[torch.Tensor]:
            return [_bias(part) for part in parts]

        return Layer(
            self._matrix(self._join(_thirds(weights(joined))), self._join(_thirds(biases(joined)))),
            self._matrix(self._from_heads(_weight(output)), _bias(output)),
            self._matrix(self._beside(weights(ups)), self._beside(biases(ups))),
            self._matrix(self._from_inner(_weight(down)), _bias(down)),
            *self._norm(module.get_submodule(row.attention_norm)),
            *self._norm(output_norm),
        )

    def layer_low_rank(self, factors: Mapping[str, Factors], shapes: Mapping[str, tuple[int, int]]) -> LayerLowRank:
        """Pack what is added to one layer; names and shapes (out, in) are those within the layer."""
        row = self._row
        lowers, uppers = _blocks(row.joined, factors, shapes)
        joined = self._low_rank(lowers, self._join(_thirds(uppers)))
        lowers, uppers = _blocks([row.attention_output], factors, shapes)
        output = self._low_rank(self._from_heads(lowers), uppers[0])
        lowers, uppers = _blocks(row.up, factors, shapes)
        up = self._low_rank(lowers, self._beside(uppers))
        lowers, uppers = _blocks([row.down], factors, shapes)
        return LayerLowRank(joined, output, up, self._low_rank(self._from_inner(lowers), uppers[0]))

    def _join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Put the rows of queries, keys and values under each other, those of a head padded to whole vectors."""
        return torch.cat([self._by_head(part) for part in parts])

    def _from_heads(self, weight: torch.Tensor) -> torch.Tensor:
        """Pad the columns that read the heads as the heads are padded."""
        return self._by_head(weight.T).T

    def _by_head(self, rows: torch.Tensor) -> torch.Tensor:
        parts = rows.reshape(self._heads, rows.shape[0] // self._heads, *rows.shape[1:])
        missing = -parts.shape[1] % self._kernels.lanes
        padded = F.pad(parts, (0, 0) * (parts.dim() - 2) + (0, missing))
        return padded.reshape(self._heads * padded.shape[1], *rows.shape[1:])

    def _beside(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Arrange the rows of the widening weight; a gate's lie beside those they multiply, half a panel each."""
        if not self._row.gated:
            return parts[0]
        if len(parts) == 1:
            gate, up = parts[0].chunk(2)
            parts = [up, gate]
        half = self._kernels.panel // 2
        missing = -parts[0].shape[0] % half
        rest = parts[0].shape[1:]
        blocks = [F.pad(part, (0, 0) * len(rest) + (0, missing)) for part in parts]
        count = len(blocks[0]) // half
        beside = torch.stack([block.reshape(count, half, *rest) for block in blocks], dim=1)
        return beside.reshape(2 * count * half, *rest)

    def _from_inner(self, weight: torch.Tensor) -> torch.Tensor:
        """Pad the columns that read the widened states as those are padded."""
        multiple = self._kernels.panel // 2 if self._row.gated else self._kernels.panel
        return F.pad(weight, (0, -weight.shape[1] % multiple))

    def _matrix(self, weight: torch.Tensor, bias: torch.Tensor) -> Matrix:
        """Pack `weight`, `[columns, inner]`."""
        panels, columns, inner = self._panels(weight)
        return Matrix(panels, self._numbers(F.pad(bias, (0, columns - len(bias)))), inner, columns)

    def _low_rank(self, lower: torch.Tensor, upper: torch.Tensor) -> LowRankMatrix:
        if not len(lower):
            return LowRankMatrix()
        matrix = self._matrix(lower, torch.zeros(0))
        self.widest = max(self.widest, matrix.columns)
        panels, _, rank = self._panels(upper)
        return LowRankMatrix(matrix, panels, rank)

    def _panels(self, weight: torch.Tensor) -> tuple[int, int, int]:
        """Lay `[columns, inner]` out; return where, and both sizes padded."""
        columns = round_up(weight.shape[0], self._kernels.panel)
        inner = round_up(weight.shape[1], self._kernels.step)
        source = F.pad(weight.float(), (0, inner - weight.shape[1], 0, columns - weight.shape[0])).contiguous()
        panels = torch.empty(columns * inner * self._kernels.element_bytes, dtype=torch.uint8)
        self._kernels.pack(source.data_ptr(), columns, inner, panels.data_ptr())
        self.memory.append(panels)
        return panels.data_ptr(), columns, inner

    def _norm(self, norm: torch.nn.Module) -> Sequence[int]:
        if not isinstance(norm, torch.nn.LayerNorm) or norm.weight is None:
            raise RunnerUnfitError(f"it normalises with {type(norm).__name__}, not LayerNorm with a weight")
        bias = torch.zeros(len(norm.weight)) if norm.bias is None else norm.bias.detach()
        return self._numbers(norm.weight.detach()), self._numbers(bias)

    def _numbers(self, values: torch.Tensor) -> int:
        kept = values.float().contiguous().clone()
        self.memory.append(kept)
        return kept.data_ptr()


def _blocks(
    names: Sequence[str], factors: Mapping[str, Factors], shapes: Mapping[str, tuple[int, int]]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Join the factors of layers over one input: lower ones under each other, upper ones each in its own columns."""
    present = [factors.get(name) for name in names]
    ranks = [0 if found is None else len(found.lower) for found in present]
    lower = torch.cat([torch.zeros(0, shapes[names[0]][1]), *(found.lower.float() for found in present if found)])
    uppers, before = [], 0
    for name, found, rank in zip(names, present, ranks, strict=True):
        rows = torch.zeros(shapes[name][0], rank) if found is None else found.upper.float()
        uppers.append(F.pad(rows, (before, sum(ranks) - before - rank)))
        before += rank
    return lower, uppers


def _thirds(parts: list[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Take queries, keys and values apart where one layer has all three."""
    return parts[0].chunk(3) if len(parts) == 1 else parts


def _linear(module: torch.nn.Module, name: str) -> torch.nn.Linear:
    part = module.get_submodule(name)
    if type(part) is not torch.nn.Linear:
        raise RunnerUnfitError(f"its {name} is a {type(part).__name__}, not a plain linear layer")
    return part


def _weight(linear: torch.nn.Linear) -> torch.Tensor:
    return linear.weight.detach()


def _bias(linear: torch.nn.Linear) -> torch.Tensor:
    return torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach()

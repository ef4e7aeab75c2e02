"""From a model's layers to the structures the kernels read: weights joined, padded and laid out in panels.

It knows the parts of a layer by the names of a `LayerRow`, and no architecture.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from sie_pytorch.loop.table import LayerRow
from sie_pytorch.runners import RunnerUnfitError

from sie_cpu.kernels import Kernels, Layer, Matrix


def round_up(value: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-value // multiple) * multiple


class Packer:
    """Lays weights out and keeps the memory they lie in."""

    def __init__(self, kernels: Kernels, heads: int) -> None:
        self.memory: list[torch.Tensor] = []
        self._kernels = kernels
        self._heads = heads

    def layer(self, module: torch.nn.Module, row: LayerRow) -> Layer:
        """Pack one layer.

        Raises:
            RunnerUnfitError: A part is not what the row says.
        """
        query, key, value = (_linear(module, name) for name in (row.query, row.key, row.value))
        if not query.weight.shape == key.weight.shape == value.weight.shape:
            raise RunnerUnfitError("its queries, keys and values differ in width")
        output, up, down = (_linear(module, name) for name in (row.attention_output, row.up, row.down))
        gate = _linear(module, row.gate) if row.gate else None
        return Layer(
            self._matrix(
                torch.cat([self._by_head(part.weight.detach()) for part in (query, key, value)]),
                torch.cat([self._by_head(_bias(part)) for part in (query, key, value)]),
            ),
            self._matrix(self._by_head(output.weight.detach().T).T, _bias(output)),
            self._up(up, gate),
            self._matrix(down.weight.detach(), _bias(down), inner_multiple=self._inner_multiple(gate is not None)),
            *self._norm(module, row.attention_norm),
            *self._norm(module, row.output_norm),
        )

    def _inner_multiple(self, gated: bool) -> int:
        return self._kernels.panel // 2 if gated else self._kernels.panel

    def _by_head(self, rows: torch.Tensor) -> torch.Tensor:
        """Pad each head's rows of `[heads * head_dim, …]` with zeros to whole vectors."""
        parts = rows.reshape(self._heads, -1, *rows.shape[1:])
        missing = -parts.shape[1] % self._kernels.lanes
        padded = F.pad(parts, (0, 0) * (parts.dim() - 2) + (0, missing))
        return padded.reshape(-1, *rows.shape[1:])

    def _up(self, up: torch.nn.Linear, gate: torch.nn.Linear | None) -> Matrix:
        """Pack the widening product; a gate's columns lie beside those they multiply, half a panel each."""
        if gate is None:
            return self._matrix(up.weight.detach(), _bias(up))
        half = self._kernels.panel // 2
        missing = -up.out_features % half
        weights = [
            F.pad(part.weight.detach(), (0, 0, 0, missing)).view(-1, half, up.in_features) for part in (up, gate)
        ]
        biases = [F.pad(_bias(part), (0, missing)).view(-1, half) for part in (up, gate)]
        return self._matrix(
            torch.stack(weights, dim=1).reshape(-1, up.in_features), torch.stack(biases, dim=1).reshape(-1)
        )

    def _matrix(self, weight: torch.Tensor, bias: torch.Tensor, inner_multiple: int = 0) -> Matrix:
        """Pack `weight`, `[columns, inner]`."""
        columns = round_up(weight.shape[0], self._kernels.panel)
        inner = round_up(weight.shape[1], inner_multiple or self._kernels.step)
        padding = (0, inner - weight.shape[1], 0, columns - weight.shape[0])
        source = F.pad(weight.float(), padding).contiguous()
        panels = torch.empty(columns * inner * self._kernels.element_bytes, dtype=torch.uint8)
        self._kernels.pack(source.data_ptr(), columns, inner, panels.data_ptr())
        self.memory.append(panels)
        return Matrix(panels.data_ptr(), self._numbers(F.pad(bias, (0, columns - len(bias)))), inner, columns)

    def _norm(self, module: torch.nn.Module, name: str) -> Sequence[int]:
        norm = module.get_submodule(name)
        if not isinstance(norm, torch.nn.LayerNorm) or norm.weight is None or norm.bias is None:
            raise RunnerUnfitError(f"its {name} is a {type(norm).__name__}, not LayerNorm with weight and bias")
        return self._numbers(norm.weight.detach()), self._numbers(norm.bias.detach())

    def _numbers(self, values: torch.Tensor) -> int:
        kept = values.float().contiguous().clone()
        self.memory.append(kept)
        return kept.data_ptr()


def _linear(module: torch.nn.Module, name: str) -> torch.nn.Linear:
    part = module.get_submodule(name)
    if type(part) is not torch.nn.Linear:
        raise RunnerUnfitError(f"its {name} is a {type(part).__name__}, not a plain linear layer")
    return part


def _bias(linear: torch.nn.Linear) -> torch.Tensor:
    return torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach()


def layers_of(layers: Sequence[Layer]) -> ctypes.Array[Layer]:
    """Make the array the kernels read."""
    return (Layer * len(layers))(*layers)

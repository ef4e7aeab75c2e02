"""The parts of the loop with fused kernels. Those they inherit from compute the same by operators of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import torch
from sie_pytorch.forward import LayerStack, RunnerUnfitError

from sie_flash.attention import Rotation, VarlenAttention
from sie_flash.loop import VarlenParts
from sie_flash.products import FusedUpProjection


class TritonUpProjection(FusedUpProjection):
    """SiLU and gate in one kernel."""

    def _gate(self, wide: torch.Tensor) -> torch.Tensor:
        from sie_flash.fused.kernels import silu_gate

        return silu_gate(wide, gate_first=self._gate_first)


class TritonAttention(VarlenAttention):
    """Norms and rotation of heads in one kernel."""

    def _heads(self, joined: torch.Tensor, angles: Rotation | None) -> Sequence[torch.Tensor]:
        from sie_flash.fused.kernels import turn_heads

        count, values = self._turned
        cosine, sine = (None, None) if angles is None else angles[:2]
        neighbours = self._pair_axis == -1
        turned = turn_heads(joined, count, self._norm_weights, self._epsilon, cosine, sine, neighbours=neighbours)
        return *turned.split_with_sizes(self._turned_apart, 1), joined[:, count : count + values]


class FusedParts(VarlenParts):
    """Parts with kernels for what a decoder's layer does between its products."""

    def up_projection(self, stack: LayerStack, layer: torch.nn.Module) -> FusedUpProjection:
        """See `LoopParts.up_projection`."""
        gates = stack.row.gated and stack.activation == "silu"
        kind = TritonUpProjection if gates else FusedUpProjection
        return kind(stack, layer, self.dtype, fuses=self.signs.device.type != "cpu")

    def attention(self, stack: LayerStack, layer: torch.nn.Module) -> VarlenAttention:
        """See `VarlenParts.attention`.

        Raises:
            RunnerUnfitError: The kernel does not take such heads, there is nothing to fuse, or Triton is missing.
        """
        if find_spec("triton") is None:
            raise RunnerUnfitError("Triton is not installed")
        if stack.row.rotary is None and stack.row.query_norm is None:
            raise RunnerUnfitError("its layers neither rotate nor normalise heads")
        self.require(stack)
        return TritonAttention(stack, layer, self.dtype)

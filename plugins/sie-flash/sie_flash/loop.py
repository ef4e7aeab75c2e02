"""The loop of sie-pytorch on a GPU: a described model's layers, their attention one variable-length kernel a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from sie_pytorch.forward import (
    Angles,
    Batch,
    LayerLoop,
    LayerStack,
    LoraDelta,
    LowRank,
    Rows,
    RunnerContext,
    Transfers,
    frequencies_follow_batch,
)

from sie_flash.attention import Rotation, VarlenAttention
from sie_flash.folding import move_biases
from sie_flash.graphs import Capture, Graphs
from sie_flash.kernels import Kernel
from sie_flash.layout import VarlenLayout, lay_out
from sie_flash.products import FusedLinear, FusedUpProjection


@dataclass(frozen=True, slots=True)
class VarlenParts:
    """`LoopParts` of a GPU: nothing is padded, and nothing is copied to be laid out."""

    dtype: torch.dtype
    kernel: Kernel
    transfers: Transfers
    signs: torch.Tensor
    """`[2]`: minus one and one."""

    @classmethod
    def on(cls, device: torch.device, dtype: torch.dtype, kernel: Kernel) -> VarlenParts:
        """Make them for a device."""
        return cls(dtype, kernel, Transfers(device), torch.tensor([-1, 1], dtype=dtype, device=device))

    def product(self, layers: Sequence[torch.nn.Linear | Rows]) -> FusedLinear:
        """See `LoopParts.product`."""
        return FusedLinear(layers, self.dtype)

    def up_projection(self, stack: LayerStack, layer: torch.nn.Module) -> FusedUpProjection:
        """See `LoopParts.up_projection`."""
        return FusedUpProjection(stack, layer, self.dtype, fuses=self.signs.device.type != "cpu")

    def attention(self, stack: LayerStack, layer: torch.nn.Module) -> VarlenAttention:
        """Take the weights of one layer.

        Raises:
            RunnerUnfitError: The kernel does not take such heads.
        """
        self.require(stack)
        return VarlenAttention(stack, layer, self.dtype)

    def require(self, stack: LayerStack) -> None:
        """Check that the kernel takes the model's heads.

        Raises:
            RunnerUnfitError: It does not.
        """
        head = torch.empty((0, stack.head_size), dtype=self.dtype, device="meta")
        self.kernel.require(head, head, head)

    def row_count(self, tokens: int) -> int:
        """Compute exactly the tokens' rows."""
        return tokens

    def lay_out(self, batch: Batch) -> VarlenLayout:
        """See `LoopParts.lay_out`."""
        return lay_out(self.kernel, self.transfers, batch)

    def rotation(self, stack: LayerStack, angles: Angles) -> Rotation:
        """Turn the angles into the factors of every layer."""
        width = angles[0].shape[1]
        cosine, sine = (each[:, None, : width // 2] for each in angles)
        if stack.row.rotary == "interleaved":
            return Rotation(cosine[..., None], sine[..., None] * self.signs, width)
        return Rotation(cosine[:, :, None], sine[:, :, None] * self.signs[:, None], width)


class VarlenLoop(LayerLoop):
    """Runs the layers of a described model with attention by a kernel."""

    def __init__(
        self,
        context: RunnerContext,
        kernel: Kernel,
        capture: Callable[[], Capture] | None = None,
        kind: type[VarlenParts] = VarlenParts,
    ) -> None:
        """Take the weights of `context.model`.

        Args:
            context: What a runner is made of.
            kernel: Attends.
            capture: Makes what records short passes; None launches each kernel of every pass.
            kind: The parts of the layers.

        Raises:
            RunnerUnfitError: The model does not match its row, or the kernel does not support its heads.
        """
        parts = kind.on(context.device, context.dtype, kernel)
        super().__init__(context, parts)
        self._shifts = move_biases(self._layers)
        if frequencies_follow_batch(context.model.config):
            capture = None  # a graph would keep the choice made for another batch
        self._graphs = None if capture is None else Graphs(kernel, parts.transfers, capture)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states, of a short batch by a graph; see `Runner.forward`."""
        if self._graphs is not None and batch.low_rank is None and batch.key_lengths is None:
            states = self._graphs(self._run, batch, tuple(self._stack.windows()))
            if states is not None:
                return states
        return super().forward(batch)

    def _embed(self, batch: Batch) -> tuple[torch.Tensor, list[Angles]]:
        states, angles = super()._embed(batch)
        first = self._shifts[0].attention
        return states if first is None else states.add_(first), angles

    def _lora_delta(self, low_rank: LowRank, number: int) -> LoraDelta:
        """Return the LoRA delta of a layer, for inputs without moved biases."""
        row, shifts, lora = self._stack.row, self._shifts[number], super()._lora_delta(low_rank, number)
        moved = {row.joined[0]: shifts.attention, row.up[0]: shifts.feed_forward}

        def of_unmoved(states: torch.Tensor, *names: str) -> torch.Tensor | None:
            shift = moved.get(names[0])
            return lora(states if shift is None else states - shift, *names)

        return of_unmoved

"""The sequences of one packed batch as variable-length kernels want them, and attention within each of them.

It knows tensors and kernels: no model, no transformers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sie_pytorch.transfers import Transfers

from sie_flash.kernels import Kernel, Window


@dataclass(slots=True)
class VarlenLayout:
    """An `AttentionLayout` of sie-pytorch: one kernel call a layer, whatever the lengths are."""

    kernel: Kernel
    cu_seqlens: torch.Tensor
    """int32 `[sequences + 1]` on the device."""
    longest: int
    """Tokens of the longest sequence."""
    calls: int = 0
    """Attention layers that ran so far."""

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        causal: bool,
        window: int | None,
        scale: float | None,
    ) -> torch.Tensor:
        """Attend as `AttentionLayout.attend` says.

        Raises:
            RunnerUnfitError: The kernel does not take such states.
        """
        self.calls += 1
        self.kernel.require(query, key, value)
        query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
        sides = self._sides(causal, window)
        states = self.kernel.attend(query, key, value, self.cu_seqlens, self.longest, scale, sides)
        return states.contiguous()[None]

    def _sides(self, causal: bool, window: int | None) -> Window:
        """Say how far a query sees; a window no sequence reaches beyond is none, which is faster."""
        reach = -1 if window is None or window >= self.longest else window - 1
        return (reach, 0 if causal else reach)


def lay_out(kernel: Kernel, transfers: Transfers, cu_seqlens: torch.Tensor) -> VarlenLayout:
    """Bring a batch's `cu_seqlens` to the device; the longest sequence is found here, on the host, without a wait."""
    bounds = cu_seqlens.numpy()
    (there,) = transfers.upload([bounds.astype(np.int32)])
    return VarlenLayout(kernel, there, int(np.diff(bounds).max()))

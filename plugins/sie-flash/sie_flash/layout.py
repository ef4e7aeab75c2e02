"""The sequences of one packed batch in the form of variable-length kernels, and attention within each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sie_pytorch.forward import Batch, PackedLayout, Transfers, seen_tokens

from sie_flash.kernels import Bounds, Kernel, Window


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a batch in which some tokens are no keys."""

    rows: torch.Tensor
    """int64 `[total_keys]` on the device: the tokens that are keys."""
    bounds: Bounds
    """Boundaries of their sequences."""
    longest: int
    """Tokens of the longest sequence that has more than keys."""
    masked: PackedLayout
    """Attention for the case that a kernel, which counts windows from the end of a sequence, cannot compute."""


@dataclass(slots=True)
class VarlenLayout:
    """An `AttentionLayout` of sie-pytorch: one kernel call a layer, for any lengths."""

    kernel: Kernel
    bounds: Bounds
    """Boundaries of the sequences."""
    keys: Keys | None = None
    """The keys of attention; None for all tokens."""
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
        states = self.attend_rows(query, key, value, causal=causal, window=window, scale=scale)
        return states.contiguous()[None]

    def attend_rows(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        causal: bool,
        window: int | None,
        scale: float | None,
    ) -> torch.Tensor:
        """Attend in states the kernel takes (`Kernel.require`), laid out as it takes them; nothing is checked.

        Args:
            query: `[total, heads, head_dim]`; the last dimension contiguous, as in `key` and `value`.
            key: `[total, key_heads, head_dim]`.
            value: As `key`.
            causal: As `AttentionLayout.attend` says, like `window` and `scale`.
            window: As there.
            scale: As there.

        Returns:
            `[total, heads, head_dim]`.
        """
        keys, seen = self.keys, self.bounds
        if keys is not None:
            if causal or (window is not None and window < keys.longest):
                turned = (states.transpose(0, 1)[None] for states in (query, key, value))
                return keys.masked.attend(*turned, causal=causal, window=window, scale=scale)[0]
            key, value, seen = key[keys.rows], value[keys.rows], keys.bounds
        return self.kernel.attend(query, key, value, self.bounds, seen, scale, self._sides(causal, window))

    def _sides(self, causal: bool, window: int | None) -> Window:
        """Return the window of a query; a window beyond every sequence is returned as none, which is faster."""
        reach = -1 if window is None or window >= self.bounds.longest else window - 1
        return (reach, 0 if causal else reach)


def lay_out(kernel: Kernel, transfers: Transfers, batch: Batch) -> VarlenLayout:
    """Bring a batch's bounds to the device; the longest sequence is found here, on the host, without a wait."""
    cu_seqlens, key_lengths = batch.cu_seqlens, batch.key_lengths
    bounds, lengths = cu_seqlens.numpy(), cu_seqlens.diff().numpy()
    there = batch.bounds
    if there is None:
        (there,) = transfers.upload([bounds.astype(np.int32)])
    queries = Bounds(there, int(lengths.max()))
    if key_lengths is None:
        return VarlenLayout(kernel, queries)
    seen = key_lengths.numpy()
    kept = np.flatnonzero(seen_tokens(cu_seqlens, key_lengths).numpy())
    rows, of_keys = transfers.upload([kept, np.concatenate(([0], np.cumsum(seen))).astype(np.int32)])
    keys = Keys(
        rows,
        Bounds(of_keys, int(seen.max())),
        int(lengths[seen < lengths].max(initial=0)),
        PackedLayout.of(cu_seqlens, key_lengths, transfers),
    )
    return VarlenLayout(kernel, queries, keys)

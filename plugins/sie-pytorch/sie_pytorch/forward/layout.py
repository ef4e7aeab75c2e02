"""The layout of sequences in a packed batch, and attention within each of them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Protocol

import torch
import torch.nn.functional as F

from sie_pytorch.forward.transfers import Transfers

WINDOW_BLOCK = 128
"""Least number of queries per block of a windowed sequence; a block sees its own keys and a window on each side."""


@dataclass(frozen=True, slots=True)
class Run:
    """`count` adjacent sequences of `length` tokens each; `start` is the index of their first token."""

    start: int
    count: int
    length: int

    @property
    def stop(self) -> int:
        """The number of the first token after it."""
        return self.start + self.count * self.length


def runs_of(cu_seqlens: torch.Tensor) -> tuple[Run, ...]:
    """Join adjacent sequences of equal length, so that each attention call takes as many as it can.

    On a CPU one call over 32 sequences of 16 tokens takes half the time of 32 calls; padding unequal ones would lose
    that gain.

    Raises:
        ValueError: A sequence is empty.
    """
    bounds = cu_seqlens.tolist()
    runs: list[Run] = []
    for start, stop in pairwise(bounds):
        length = stop - start
        if length < 1:
            raise ValueError(f"cu_seqlens must rise, but has {start} before {stop}; leave empty sequences out")
        if runs and runs[-1].length == length:
            runs[-1] = Run(runs[-1].start, runs[-1].count + 1, length)
        else:
            runs.append(Run(start, 1, length))
    return tuple(runs)


def seen_tokens(cu_seqlens: torch.Tensor, key_lengths: torch.Tensor) -> torch.Tensor:
    """Return whether each token is a key: bool `[total_tokens]`; see `Runner.forward`."""
    lengths = cu_seqlens.diff()
    places = torch.arange(int(cu_seqlens[-1])) - cu_seqlens[:-1].repeat_interleave(lengths)
    return places < key_lengths.repeat_interleave(lengths)


class BiasWithin(Protocol):
    """Biases of attention scores by the distance of two tokens."""

    def within(self, length: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the biases within a sequence: `[heads, queries, keys]`, both `length`."""
        ...


class AttentionLayout(Protocol):
    """One batch's sequences, handed down to every attention layer of one forward pass, and a way to attend in them."""

    calls: int
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
        """Let every token attend to the tokens of its own sequence.

        Args:
            query: `[1, heads, total, head_dim]`.
            key: `[1, key_heads, total, head_dim]`; `heads` is a multiple of `key_heads`.
            value: `[1, key_heads, total, value_dim]`.
            causal: Token i sees token j only if j ≤ i.
            window: Token i sees token j only if |i - j| < window; None sees all.
            scale: Factor of the scores; None means `head_dim ** -0.5`.

        Returns:
            `[1, total, heads, value_dim]`, contiguous.

        Raises:
            RunnerUnfitError: It cannot attend so.
        """
        ...


@dataclass(slots=True)
class PackedLayout:
    """An `AttentionLayout` over PyTorch's own attention: one call a run of sequences of equal length."""

    runs: tuple[Run, ...]
    eager: bool = False
    """Whether attention runs as separate products and a softmax instead of PyTorch's fused function."""
    seen: tuple[torch.Tensor | None, ...] | None = None
    """Masks of visible keys for each run, bool `[count, 1, 1, length]`; None if all are visible."""
    _: KW_ONLY
    calls: int = 0
    """Attention layers that ran so far."""
    _masks: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict)
    _biases: dict[int, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, cu_seqlens: torch.Tensor, key_lengths: torch.Tensor | None, transfers: Transfers, *, eager: bool = False
    ) -> PackedLayout:
        """Lay out a batch. Masks of `key_lengths` go to the device without a wait."""
        runs = runs_of(cu_seqlens)
        if key_lengths is None:
            return cls(runs, eager)
        keys = seen_tokens(cu_seqlens, key_lengths)
        (there,) = transfers.upload([keys.numpy()])
        seen = tuple(
            None if keys[run.start : run.stop].all() else there[run.start : run.stop].view(run.count, 1, 1, run.length)
            for run in runs
        )
        return cls(runs, eager, seen)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        causal: bool,
        window: int | None,
        scale: float | None,
        bias: BiasWithin | None = None,
    ) -> torch.Tensor:
        """Attend; see `AttentionLayout.attend`. One `bias` is for all layers of a pass."""
        self.calls += 1
        seen = self.seen or (None,) * len(self.runs)
        if len(self.runs) == 1:
            output = self._run(query, key, value, self.runs[0], seen[0], causal, window, scale, bias)
            return output.transpose(1, 2).reshape(1, query.shape[2], query.shape[1], value.shape[3]).contiguous()
        packed = query.new_empty((1, query.shape[2], query.shape[1], value.shape[3]))
        for run, keys in zip(self.runs, seen, strict=True):
            output = self._run(query, key, value, run, keys, causal, window, scale, bias)
            rows = packed[0, run.start : run.stop].view(run.count, run.length, *packed.shape[2:])
            rows.copy_(output.transpose(1, 2))
        return packed

    def _run(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        run: Run,
        seen: torch.Tensor | None,
        causal: bool,
        window: int | None,
        scale: float | None,
        bias: BiasWithin | None,
    ) -> torch.Tensor:
        """Attend within the sequences of one run: `[count, heads, length, value_dim]`."""
        q, k, v = (
            states[0, :, run.start : run.stop].view(-1, run.count, run.length, states.shape[3]).transpose(0, 1)
            for states in (query, key, value)
        )
        biases = None if bias is None else self._bias(bias, run.length, q.dtype)
        if window is None or window >= run.length:
            if (seen is None and biases is None) or not causal:
                return self._kernel(q, k, v, seen, causal, scale, biases)
            window = run.length
        block = max(WINDOW_BLOCK, window)
        parts = []
        for start in range(0, run.length, block):
            stop = min(start + block, run.length)
            low = max(0, start - window + 1)
            high = stop if causal else min(run.length, stop + window - 1)
            mask = self._band(start - low, stop - start, high - low, causal, window, q.device)
            if seen is not None:
                mask = mask & seen[..., low:high]
            some = None if biases is None else biases[:, start:stop, low:high]
            keys, values = k[:, :, low:high], v[:, :, low:high]
            parts.append(self._kernel(q[:, :, start:stop], keys, values, mask, False, scale, some))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    def _bias(self, bias: BiasWithin, length: int, dtype: torch.dtype) -> torch.Tensor:
        if length not in self._biases:
            self._biases[length] = bias.within(length, dtype)
        return self._biases[length]

    def _band(
        self, offset: int, queries: int, keys: int, causal: bool, window: int, device: torch.device
    ) -> torch.Tensor:
        """Make the mask `[queries, keys]` of a window; query 0 stands at key `offset`. True may be seen."""
        identity = (offset, queries, keys, int(causal), window)
        mask = self._masks.get(identity)
        if mask is None:
            distance = torch.arange(offset, offset + queries, device=device)[:, None] - torch.arange(
                keys, device=device
            )
            mask = (distance < window) & (distance >= 0 if causal else distance > -window)
            self._masks[identity] = mask
        return mask

    def _kernel(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        causal: bool,
        scale: float | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        if self.eager:
            states = _eager(query, key, value, mask, causal, scale, bias)
        else:
            grouped = query.shape[1] != key.shape[1]
            added = mask if bias is None else bias if mask is None else torch.where(mask, bias, float("-inf"))
            states = F.scaled_dot_product_attention(
                query, key, value, attn_mask=added, is_causal=causal, scale=scale, enable_gqa=grouped
            )
        if self.seen is None or mask is None:
            return states
        # A query without keys gets zeros: not every kernel does that.
        return states.masked_fill(~mask.any(dim=-1, keepdim=True), 0)


def _eager(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """Spell attention out, the softmax in float32."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
    scores = query @ key.transpose(2, 3) * (query.shape[3] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if causal:
        mask = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype) @ value

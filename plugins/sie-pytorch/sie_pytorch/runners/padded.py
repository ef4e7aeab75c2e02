"""The padded runner: any transformers text encoder through its own forward pass, behind the packed interface.

It knows no architecture: the model derives positions, masks and biases itself, as it does anywhere else.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import torch

from sie_pytorch.runners.checkpoint import forward_arguments
from sie_pytorch.runners.layout import seen_tokens
from sie_pytorch.runners.low_rank import applied, shapes_of
from sie_pytorch.runners.protocol import LowRank, RunnerContext, weight_bytes

PADDING_SHARE = 1 / 8
"""Share of a padded batch that may be padding."""
PADDING_TOKENS = 128
"""Padding tokens that are always allowed: about what a pass of its own costs."""


class PaddedRunner:
    """Sorts sequences by length, runs them in padded batches of similar length, and returns them flat."""

    def __init__(self, context: RunnerContext, *, exact: bool = False) -> None:
        """Have the model attend by PyTorch's fused function, or spelled out where the backend is `eager`.

        Args:
            context: What to run.
            exact: Batch only sequences of equal length: for models whose results change with padding.
        """
        self._model = context.cast_model()
        self._exact = exact
        self._arguments = forward_arguments(context.model)
        self._pad_token = context.model.config.pad_token_id or 0
        attention = "eager" if context.attention_backend == "eager" else "sdpa"
        if context.model.config._attn_implementation != attention:
            context.model.set_attn_implementation(attention)

    @property
    def memory_bytes(self) -> int:
        """What the model takes."""
        return weight_bytes(self._model)

    @cached_property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """Every plain linear layer of the model."""
        return shapes_of(self._model)

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        low_rank: LowRank | None = None,
        key_lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`. The model numbers positions itself."""
        with applied(self._model, low_rank):
            return self._forward(ids, segment_ids, cu_seqlens, key_lengths)

    def _forward(
        self,
        ids: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        key_lengths: torch.Tensor | None,
    ) -> torch.Tensor:
        seen = None if key_lengths is None else seen_tokens(cu_seqlens, key_lengths).to(ids.device)
        bounds: list[int] = cu_seqlens.tolist()
        lengths = [stop - start for start, stop in pairwise(bounds)]
        parts, order = [], []
        for batch in group_by_length(lengths, exact=self._exact):
            rows = _rows(batch, bounds, lengths)
            real = (rows >= 0).flatten().nonzero()[:, 0]
            states = self._run(ids, segment_ids, seen, rows.to(ids.device)).flatten(0, 1)
            parts.append(states[real.to(ids.device)])
            order.append(rows.flatten()[real])
        places = torch.empty(bounds[-1], dtype=torch.int64)
        places[torch.cat(order)] = torch.arange(bounds[-1])
        return torch.cat(parts)[places.to(ids.device)]

    def _run(
        self, ids: torch.Tensor, segment_ids: torch.Tensor | None, seen: torch.Tensor | None, rows: torch.Tensor
    ) -> torch.Tensor:
        """Run one padded batch: `rows` `[sequences, longest]` numbers its tokens, -1 is padding.

        Of its tokens those are attended to that are `seen`, bool `[total_tokens]`; None means all.
        """
        real = rows >= 0
        safe = rows.clamp(min=0)
        arguments: dict[str, Any] = {"input_ids": ids[safe].masked_fill(~real, self._pad_token)}
        if seen is not None:
            arguments["attention_mask"] = (real & seen[safe]).long()
        elif "attention_mask" in self._arguments:
            arguments["attention_mask"] = real.long()
        if segment_ids is not None and "token_type_ids" in self._arguments:
            arguments["token_type_ids"] = segment_ids[safe].masked_fill(~real, 0)
        states: torch.Tensor = self._model(**arguments).last_hidden_state
        return states


def group_by_length(lengths: list[int], *, exact: bool = False) -> list[list[int]]:
    """Put sequences into padded batches of similar length, longest first.

    A batch takes the next shorter sequence as long as its padding stays within an eighth of it, or within the tokens
    that a pass of its own would cost. With `exact` no padding at all.

    Returns:
        For each batch the numbers of its sequences.
    """
    batches: list[list[int]] = []
    longest = real = 0
    for number in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        length = lengths[number]
        padded = longest * (len(batches[-1]) + 1) if batches else 0
        padding = padded - real - length
        fits = padding <= (0 if exact else max(padded * PADDING_SHARE, PADDING_TOKENS))
        if batches and fits:
            batches[-1].append(number)
            real += length
        else:
            batches.append([number])
            longest = real = length
    return batches


def _rows(batch: list[int], bounds: list[int], lengths: list[int]) -> torch.Tensor:
    """Number the tokens of a padded batch within the flat row: `[sequences, longest]`, -1 for padding."""
    starts = torch.tensor([bounds[n] for n in batch])[:, None]
    ends = torch.tensor([bounds[n] + lengths[n] for n in batch])[:, None]
    rows = starts + torch.arange(max(lengths[n] for n in batch))
    return torch.where(rows < ends, rows, -1)

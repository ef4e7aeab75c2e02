"""Runners that are wrong in one way each; a spec of a test names them."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from sie_pytorch.runners import RunnerContext, RunnerUnfitError
from sie_pytorch.runners.layout import PackedLayout
from sie_pytorch.runners.packed import PackedRunner
from sie_pytorch.runners.padded import PaddedRunner


class OneSegment(PackedRunner):
    """Lets all sequences see each other."""

    def forward(self, ids: Any, positions: Any, segment_ids: Any, cu_seqlens: Any, low_rank: Any = None) -> Any:
        return super().forward(ids, positions, segment_ids, cu_seqlens[[0, -1]], low_rank)


class LatePositions(PackedRunner):
    """Counts positions from one too many."""

    def forward(self, ids: Any, positions: Any, segment_ids: Any, cu_seqlens: Any, low_rank: Any = None) -> Any:
        return super().forward(ids, positions + 1, segment_ids, cu_seqlens, low_rank)


class NoWindow(PackedRunner):
    """Forgets windows."""

    def forward(self, *arguments: Any) -> torch.Tensor:
        right = PackedLayout.attend

        def blind(layout: PackedLayout, *states: torch.Tensor, **facts: Any) -> torch.Tensor:
            return right(layout, *states, **{**facts, "window": None})

        with mock.patch.object(PackedLayout, "attend", blind):
            return super().forward(*arguments)


class SeesFilling(PackedRunner):
    """Has tokens attend to those that nothing attends to."""

    def forward(self, *arguments: Any, **others: Any) -> torch.Tensor:
        return super().forward(*arguments)


class NotANumber(PaddedRunner):
    """Loses its numbers."""

    def forward(self, *arguments: Any) -> torch.Tensor:
        return super().forward(*arguments) * float("nan")


class Unfit:
    """Knows beforehand that it cannot."""

    def __init__(self, context: RunnerContext) -> None:
        raise RunnerUnfitError(f"it has no kernels for {context.model.config.model_type}")


class Broken:
    """Has a bug."""

    def __init__(self, context: RunnerContext) -> None:
        raise ZeroDivisionError


class Hungry:
    """Wants more memory than there is."""

    def __init__(self, context: RunnerContext) -> None:
        torch.empty(1 << 60, device=context.device)


class Sound(PaddedRunner):
    """Is right."""


class NoLinear(PackedRunner):
    """Takes no low-rank factors."""

    @property
    def linear_shapes(self) -> Any:
        return {}

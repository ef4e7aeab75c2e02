"""Runners that are wrong in one way each; a spec of a test names them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from sie_pytorch.forward import Batch, RunnerContext, RunnerUnfitError
from sie_pytorch.forward.layout import PackedLayout
from sie_pytorch.forward.packed import PackedRunner
from sie_pytorch.forward.padded.runner import PaddedRunner


class OneSegment(PackedRunner):
    """Lets all sequences see each other."""

    def forward(self, batch: Batch) -> torch.Tensor:
        return super().forward(replace(batch, cu_seqlens=batch.cu_seqlens[[0, -1]]))


class LatePositions(PackedRunner):
    """Counts positions from one too many."""

    def forward(self, batch: Batch) -> torch.Tensor:
        return super().forward(replace(batch, positions=batch.positions + 1))


class NoWindow(PackedRunner):
    """Forgets windows."""

    def forward(self, batch: Batch) -> torch.Tensor:
        right = PackedLayout.attend

        def blind(layout: PackedLayout, *states: torch.Tensor, **facts: Any) -> torch.Tensor:
            return right(layout, *states, **{**facts, "window": None})

        with mock.patch.object(PackedLayout, "attend", blind):
            return super().forward(batch)


class SeesFilling(PackedRunner):
    """Has tokens attend to those that nothing attends to."""

    def forward(self, batch: Batch) -> torch.Tensor:
        return super().forward(replace(batch, key_lengths=None))


class NotANumber(PaddedRunner):
    """Loses its numbers."""

    def forward(self, batch: Batch) -> torch.Tensor:
        return super().forward(batch) * float("nan")


class Rounds(PackedRunner):
    """Rounds in bfloat16 more than the tolerance of a direction allows, and less than that of an error."""

    def __init__(self, context: RunnerContext) -> None:
        super().__init__(context)
        self._half = context.dtype is torch.bfloat16

    def forward(self, batch: Batch) -> torch.Tensor:
        states = super().forward(batch)
        return states + 0.05 * states.abs().mean() if self._half else states


class KeepsWindows(PackedRunner):
    """Copies the width of windows when it is made, as an exported graph does."""

    def __init__(self, context: RunnerContext) -> None:
        super().__init__(context)
        self._width = context.model.config.sliding_window

    def forward(self, batch: Batch) -> torch.Tensor:
        right, width = PackedLayout.attend, self._width

        def stale(layout: PackedLayout, *states: torch.Tensor, **facts: Any) -> torch.Tensor:
            return right(layout, *states, **{**facts, "window": facts["window"] and width})

        with mock.patch.object(PackedLayout, "attend", stale):
            return super().forward(batch)


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


class Slow(PackedRunner):
    """Is right, and takes many times as long as it need."""

    def forward(self, batch: Batch) -> torch.Tensor:
        return [super(Slow, self).forward(batch) for _ in range(10)][-1]


class SlowPadded(PaddedRunner):
    """Is right, and takes many times as long as it need."""

    def forward(self, batch: Batch) -> torch.Tensor:
        return [super(SlowPadded, self).forward(batch) for _ in range(10)][-1]


class FailsWhenTimed(PackedRunner):
    """Is right, and fails once the same batch comes for a third time in a row."""

    _last, _times = b"", 0

    def forward(self, batch: Batch) -> torch.Tensor:
        ids = batch.ids.numpy().tobytes()
        self._last, self._times = ids, self._times + 1 if ids == self._last else 1
        if self._times == 3:
            raise NotImplementedError
        return super().forward(batch)


class WithoutLora:
    """Is right, and takes no LoRA adapters."""

    def __init__(self, context: RunnerContext) -> None:
        self._right = PackedRunner(context)
        self.memory_bytes = self._right.memory_bytes

    def forward(self, batch: Batch) -> torch.Tensor:
        return self._right.forward(batch)


class Version2:
    """Is right, was written for `sie.runner/2`, and takes no LoRA adapters."""

    def __init__(self, context: RunnerContext) -> None:
        self._right = PackedRunner(context)
        self.memory_bytes = self._right.memory_bytes
        self.notes = {"written": "long ago"}

    def forward(
        self, ids: Any, positions: Any, segment_ids: Any, cu_seqlens: Any, *, key_lengths: Any = None
    ) -> torch.Tensor:
        return self._right.forward(Batch(ids, positions, cu_seqlens, types=segment_ids, key_lengths=key_lengths))


class LoraVersion2(Version2):
    """The same, and takes LoRA adapters."""

    def __init__(self, context: RunnerContext) -> None:
        super().__init__(context)
        self.linear_shapes = self._right.linear_shapes

    def forward(
        self,
        ids: Any,
        positions: Any,
        segment_ids: Any,
        cu_seqlens: Any,
        *,
        low_rank: Any = None,
        key_lengths: Any = None,
    ) -> torch.Tensor:
        given = {"types": segment_ids, "low_rank": low_rank, "key_lengths": key_lengths}
        return self._right.forward(Batch(ids, positions, cu_seqlens, **given))

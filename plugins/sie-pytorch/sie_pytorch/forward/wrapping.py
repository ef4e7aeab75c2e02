"""Runners around a runner, and around those written for `sie.runner/2`, which took the fields of a `Batch` apart."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from sie_pytorch.forward.protocol import Batch, LoraRunner, LowRank, LowRankPacker, NotedRunner, Runner


class Wrapper:
    """A runner that has another one compute."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def memory_bytes(self) -> int:
        """Bytes of the runner."""
        return self._runner.memory_bytes

    @property
    def notes(self) -> Mapping[str, str]:
        """The notes of the runner."""
        return self._runner.notes if isinstance(self._runner, NotedRunner) else {}

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`."""
        return self._runner.forward(batch)


class LoraWrapper(Wrapper):
    """The same of a runner that takes LoRA adapters."""

    _runner: LoraRunner

    @property
    def linear_shapes(self) -> Mapping[str, tuple[int, int]]:
        """The linear layers of the runner."""
        return self._runner.linear_shapes

    def pack_low_rank(self, low_rank: LowRank) -> int:
        """Have the runner pack factors if it does so."""
        return self._runner.pack_low_rank(low_rank) if isinstance(self._runner, LowRankPacker) else 0


class _Version2(Wrapper):
    """A runner of version 2."""

    def forward(self, batch: Batch) -> torch.Tensor:
        """Hand it the parts of a batch."""
        run: Any = self._runner.forward
        given = {"low_rank": batch.low_rank, "key_lengths": batch.key_lengths}
        others = {name: value for name, value in given.items() if value is not None}
        states: torch.Tensor = run(batch.ids, batch.positions, batch.types, batch.cu_seqlens, **others)
        return states


class _LoraVersion2(_Version2, LoraWrapper):
    """The same of one that takes LoRA adapters."""


def of_version_2(runner: Runner) -> Runner:
    """Have a runner of version 2 take a `Batch`; it takes LoRA if `runner` does."""
    return _LoraVersion2(runner) if isinstance(runner, LoraRunner) else _Version2(runner)


def is_of_version_2(runner: Runner) -> bool:
    """Whether `forward` has the parameters of version 2.

    Its `RunnerSpec` may say otherwise, as `INTERFACE` of this release is what it imports.
    """
    return "cu_seqlens" in inspect.signature(runner.forward).parameters

"""RoPE type `longrope`: one set of rotary frequencies for short sequences and one for long ones.

transformers' classes choose the set by the longest sequence of a batch. Here each text has the frequencies that it has
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from sie_pytorch.forward.checkpoint.positions import rope_parameters
from sie_pytorch.forward.protocol import LoraRunner, LowRank, LowRankPacker, Runner
from sie_pytorch.forward.transfers import Transfers

BOUND = "original_max_position_embeddings"
"""The RoPE parameter with the longest sequence for the first set of frequencies."""


def longrope_parameters(model: Any) -> dict[str, Any] | None:
    """Return the RoPE parameters of a model with two sets of frequencies; None for any other."""
    found = (rope for rope in rope_parameters(model.config) if rope.get("rope_type") == "longrope" and rope.get(BOUND))
    return next(found, None)


def set_original_length(model: Any, rope: dict[str, Any], bound: int) -> int:
    """Set the bound everywhere transformers reads it: in the parameters, and in configs that repeat it. Returns the old
    bound.

    The long set is derived at its first use, with the bound of that moment. It does not depend on the bound, as long as
    the sequence is beyond it.
    """
    before = int(rope[BOUND])
    rope[BOUND] = bound
    if getattr(model.config, BOUND, None) == before:
        setattr(model.config, BOUND, bound)
    return before


def by_length(runner: Runner, rope: Mapping[str, Any], device: torch.device) -> Runner:
    """Have `runner` run the short sequences of a batch and the long ones apart; it takes LoRA if `runner` does.

    Args:
        runner: Runs each part.
        rope: The model's RoPE parameters, which the proof at load changes for a while.
        device: Device of `runner`.
    """
    kind = _LoraLongropeRunner if isinstance(runner, LoraRunner) else _LongropeRunner
    return kind(runner, rope, Transfers(device))


class _LongropeRunner:
    """Runs the short sequences of a batch and the long ones each by themselves."""

    def __init__(self, runner: Any, rope: Mapping[str, Any], transfers: Transfers) -> None:
        self._runner = runner
        self._rope = rope
        self._transfers = transfers

    @property
    def memory_bytes(self) -> int:
        """Bytes of the runner."""
        return int(self._runner.memory_bytes)

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        *,
        key_lengths: torch.Tensor | None = None,
        **others: Any,
    ) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`."""
        run = self._runner.forward
        lengths = cu_seqlens.diff()
        is_long = lengths > int(self._rope[BOUND])
        if is_long.all() or not is_long.any():
            whole: torch.Tensor = run(ids, positions, segment_ids, cu_seqlens, **_keys(key_lengths), **others)
            return whole
        of_long = is_long.repeat_interleave(lengths).numpy()
        uploaded = self._transfers.upload([np.flatnonzero(of_long), np.flatnonzero(~of_long)])
        states: torch.Tensor | None = None
        for part, tokens in zip((is_long, ~is_long), uploaded, strict=True):
            segments = None if segment_ids is None else segment_ids[tokens]
            bounds = torch.cat((torch.zeros(1, dtype=torch.int64), lengths[part].cumsum(0)))
            keys = _keys(None if key_lengths is None else key_lengths[part])
            found: torch.Tensor = run(ids[tokens], positions[tokens], segments, bounds, **keys, **others)
            states = found.new_empty((len(ids), found.shape[1])) if states is None else states
            states[tokens] = found
        assert states is not None
        return states


class _LoraLongropeRunner(_LongropeRunner):
    """The same of a runner that takes LoRA adapters; `forward` hands `low_rank` on."""

    @property
    def linear_shapes(self) -> Mapping[str, tuple[int, int]]:
        """The linear layers of the runner."""
        shapes: Mapping[str, tuple[int, int]] = self._runner.linear_shapes
        return shapes

    def pack_low_rank(self, low_rank: LowRank) -> int:
        """Have the runner pack factors if it does so."""
        return self._runner.pack_low_rank(low_rank) if isinstance(self._runner, LowRankPacker) else 0


def _keys(key_lengths: torch.Tensor | None) -> dict[str, torch.Tensor]:
    return {} if key_lengths is None else {"key_lengths": key_lengths}

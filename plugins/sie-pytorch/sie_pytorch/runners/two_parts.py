"""Models with one set of rotary frequencies for short sequences and one for long ones (RoPE type `longrope`).

Their classes choose by the longest sequence of a batch. Here a text has the frequencies it would have alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from sie_pytorch.runners.positions import rope_parameters
from sie_pytorch.runners.protocol import LowRank, LowRankPacker, Runner

BOUND = "original_max_position_embeddings"
"""The RoPE parameter that says how long a sequence may be for the first set of frequencies."""


def two_sets(model: Any) -> dict[str, Any] | None:
    """Give the RoPE parameters of a model with two sets of frequencies; None for any other."""
    found = (rope for rope in rope_parameters(model.config) if rope.get("rope_type") == "longrope" and rope.get(BOUND))
    return next(found, None)


def move_bound(model: Any, rope: dict[str, Any], bound: int) -> int:
    """Set the bound where transformers reads it: in the parameters, and in configs that state it beside. Give the old.

    The long set is derived when it is first used, the bound being what it is then: it depends on nothing but that the
    sequence is beyond it.
    """
    before = int(rope[BOUND])
    rope[BOUND] = bound
    if getattr(model.config, BOUND, None) == before:
        setattr(model.config, BOUND, bound)
    return before


class TwoParts:
    """Runs the short sequences of a batch and the long ones each by themselves."""

    def __init__(self, runner: Runner, rope: Mapping[str, Any]) -> None:
        """Keep the runner, and the parameters, which the proof at load changes for a while."""
        self._runner = runner
        self._rope = rope

    @property
    def memory_bytes(self) -> int:
        """What the runner takes."""
        return self._runner.memory_bytes

    @property
    def linear_shapes(self) -> Mapping[str, tuple[int, int]]:
        """The linear layers of the runner."""
        return self._runner.linear_shapes

    def pack_low_rank(self, low_rank: LowRank) -> int:
        """Have the runner pack factors where it does."""
        return self._runner.pack_low_rank(low_rank) if isinstance(self._runner, LowRankPacker) else 0

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        low_rank: LowRank | None = None,
        key_lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`."""
        lengths = cu_seqlens.diff()
        is_long = lengths > int(self._rope[BOUND])
        if is_long.all() or not is_long.any():
            return self._run(ids, positions, segment_ids, cu_seqlens, low_rank, key_lengths)
        states = None
        for part in (is_long, ~is_long):
            tokens = part.repeat_interleave(lengths).nonzero()[:, 0].to(ids.device)
            segments = None if segment_ids is None else segment_ids[tokens]
            bounds = torch.cat((torch.zeros(1, dtype=torch.int64), lengths[part].cumsum(0)))
            keys = None if key_lengths is None else key_lengths[part]
            found = self._run(ids[tokens], positions[tokens], segments, bounds, low_rank, keys)
            states = found.new_empty((len(ids), found.shape[1])) if states is None else states
            states[tokens] = found
        assert states is not None
        return states

    def _run(self, *arguments: Any) -> torch.Tensor:
        # Runners without a use for key lengths may not take any.
        return self._runner.forward(*(arguments if arguments[-1] is not None else arguments[:-1]))

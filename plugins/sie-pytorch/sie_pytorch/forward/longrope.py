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
from sie_pytorch.forward.protocol import Batch, LoraRunner, Runner
from sie_pytorch.forward.transfers import Transfers
from sie_pytorch.forward.wrapping import LoraWrapper, Wrapper

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
        rope: The model's RoPE parameters, which the proof at load changes temporarily.
        device: Device of `runner`.
    """
    kind = _LoraLongropeRunner if isinstance(runner, LoraRunner) else _LongropeRunner
    return kind(runner, rope, Transfers(device))


class _LongropeRunner(Wrapper):
    """Runs the short sequences of a batch and the long ones each by themselves."""

    def __init__(self, runner: Runner, rope: Mapping[str, Any], transfers: Transfers) -> None:
        super().__init__(runner)
        self._rope = rope
        self._transfers = transfers

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`."""
        lengths = batch.cu_seqlens.diff()
        is_long = lengths > int(self._rope[BOUND])
        if is_long.all() or not is_long.any():
            return self._runner.forward(batch)
        of_long = is_long.repeat_interleave(lengths).numpy()
        uploaded = self._transfers.upload([np.flatnonzero(of_long), np.flatnonzero(~of_long)])
        states: torch.Tensor | None = None
        for part, tokens in zip((is_long, ~is_long), uploaded, strict=True):
            given = Batch(
                batch.ids[tokens],
                batch.positions[tokens],
                torch.cat((torch.zeros(1, dtype=torch.int64), lengths[part].cumsum(0))),
                types=None if batch.types is None else batch.types[tokens],
                key_lengths=None if batch.key_lengths is None else batch.key_lengths[part],
                low_rank=batch.low_rank,
            )
            found = self._runner.forward(given)
            states = found.new_empty((len(batch.ids), found.shape[1])) if states is None else states
            states[tokens] = found
        assert states is not None
        return states


class _LoraLongropeRunner(_LongropeRunner, LoraWrapper):
    """The same of a runner that takes LoRA adapters."""

"""What a head makes of states in half precision, held to what it makes of those in float32."""

from __future__ import annotations

from typing import Protocol

import torch
from sie_text.sequences import PackedBatch

MOST_MOVED = 0.01
"""How far half precision may move a probability that a sigmoid makes of a logit."""
MANY = 100
"""From so many logits of the probes on the furthest is among them. Below, each may move a third as far: of 18 heads at
random, one of 150 other texts moved up to three times as far as any probe."""


class Judge(Protocol):
    """Says whether half precision leaves what a model's head makes of its states as it is."""

    def probes(self, limit: int | None) -> tuple[PackedBatch, bool] | None:
        """Give the sequences to judge by, and whether their token types go with them; None where it has none.

        Args:
            limit: Tokens of a sequence the positions allow; None for no limit.
        """
        ...

    def refusal(self, states: torch.Tensor, expected: torch.Tensor) -> str | None:
        """Say why a runner is not to serve in half precision; None where it may.

        Args:
            states: Its states of the probes, `[total_tokens, hidden]`.
            expected: The model's own in float32, of the same shape and device.
        """
        ...


def logits_moved(logits: torch.Tensor, expected: torch.Tensor) -> str | None:
    """Say that the probabilities of logits are further from those in float32 than `MOST_MOVED`; None if they are not.

    Args:
        logits: Of the probes, of any shape, computed in half precision.
        expected: The same in float32. Those that are not finite there are passed over.
    """
    known = expected.isfinite()
    moved = (torch.sigmoid(logits[known].double()) - torch.sigmoid(expected[known].double())).abs()
    allowed = MOST_MOVED if len(moved) >= MANY else MOST_MOVED / 3
    most = float(moved.max()) if len(moved) else 0.0
    return None if most <= allowed else f"its probabilities move by {most:.2g} in a probe, and {allowed:.2g} is allowed"

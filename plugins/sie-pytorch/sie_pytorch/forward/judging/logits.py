"""Compares a head's logits for states in half precision with those in float32."""

from __future__ import annotations

from typing import Protocol

import torch
from sie_text.sequences import PackedBatch

MOST_MOVED = 0.01
"""Bound on the change of a sigmoid's probability by half precision."""
MANY = 100
"""With at least this many probe logits, the largest deviation is likely among them.

With fewer, each may move a third as far: for 18 random heads, one of 150 other texts moved up to three times as far as
any probe.
"""


class Judge(Protocol):
    """Judges whether half precision preserves the output of a model's head."""

    def probes(self, limit: int | None) -> tuple[PackedBatch, bool] | None:
        """Return the sequences to judge by, and whether their token types are passed; None if it has none.

        Args:
            limit: Tokens of a sequence the positions allow; None for no limit.
        """
        ...

    def refusal(self, states: torch.Tensor, expected: torch.Tensor) -> str | None:
        """Explain why a runner must not serve in half precision; None if it may.

        Args:
            states: Its states of the probes, `[total_tokens, hidden]`.
            expected: The model's own in float32, of the same shape and device.
        """
        ...


def logits_moved(logits: torch.Tensor, expected: torch.Tensor) -> str | None:
    """Report that the probabilities of logits differ from those in float32 by more than `MOST_MOVED`; None if they do
    not.

    Args:
        logits: The probes' logits, of any shape, computed in half precision.
        expected: The same in float32. Entries that are not finite are ignored.
    """
    known = expected.isfinite()
    moved = (torch.sigmoid(logits[known].double()) - torch.sigmoid(expected[known].double())).abs()
    allowed = MOST_MOVED if len(moved) >= MANY else MOST_MOVED / 3
    most = float(moved.max()) if len(moved) else 0.0
    return None if most <= allowed else f"its probabilities move by {most:.2g} in a probe, and {allowed:.2g} is allowed"

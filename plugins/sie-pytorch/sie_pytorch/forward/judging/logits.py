"""What a head makes of states in half precision, held to what it makes of those in float32."""

from __future__ import annotations

from typing import Protocol

import torch
from sie_text.sequences import PackedBatch

MOST_MOVED = 0.01
"""How far half precision may move logits, in the root mean square over the probes.

Each counts by the slope of the sigmoid there, as what is surely yes or no may move further. One undecided logit in ten
thousand then moves four times as far, and the probability that a sigmoid makes of it a quarter of that: by 0.01.
"""


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
    """Say that logits are further from those in float32 than `MOST_MOVED` allows; None where they are not.

    Args:
        logits: Of the probes, of any shape, computed in half precision.
        expected: The same in float32. Those that are not finite there are passed over.
    """
    known = expected.isfinite()
    true = expected[known].double()
    slopes = torch.sigmoid(true) * torch.sigmoid(-true)
    moved = float(((logits[known].double() - true).square() * slopes).sum().div(slopes.sum()).sqrt())
    if moved <= MOST_MOVED:
        return None
    return f"its logits move by {moved:.2g} in the mean, and {MOST_MOVED:g} keeps probabilities within 0.01 of float32"

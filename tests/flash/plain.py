"""The contract of a variable-length kernel as its authors document it, spelled out on the CPU, and a runner over it.

It stands for no kernel: it shows that what the runner asks of one is right. The kernels are compared in `tests/gpu`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from sie_flash.kernels import Kernel, Window
from sie_flash.runners import VarlenRunner
from sie_pytorch.runners import RunnerContext


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens: torch.Tensor,
    longest: int,
    scale: float | None,
    window: Window,
) -> torch.Tensor:
    """Attend sequence by sequence in float64: a query at i sees keys from i - left to i + right, both included.

    Of each sequence only the first `longest` tokens are computed, as a kernel's grid reaches no farther.
    """
    assert cu_seqlens.dtype == torch.int32
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    output = torch.full_like(query, float("nan"))
    groups = query.shape[1] // key.shape[1]
    left, right = (side if side >= 0 else longest for side in window)
    for start, stop in pairwise(cu_seqlens.tolist()):
        rows = slice(start, min(stop, start + longest))
        q, k, v = (states[rows].double().transpose(0, 1) for states in (query, key, value))
        k, v = (states.repeat_interleave(groups, dim=0) for states in (k, v))
        distance = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
        seen = (distance <= left) & (-distance <= right)
        scores = (q @ k.transpose(1, 2) * (q.shape[2] ** -0.5 if scale is None else scale)).masked_fill(
            ~seen, float("-inf")
        )
        output[rows] = (scores.softmax(-1) @ v).transpose(0, 1).to(query.dtype)
    return output


PLAIN = Kernel("plain", attend, dtypes=frozenset({torch.float32, torch.bfloat16, torch.float16}))


class PlainRunner(VarlenRunner):
    """Attends by the contract alone."""

    def __init__(self, context: RunnerContext) -> None:
        super().__init__(context, PLAIN)

"""The contract of a variable-length kernel as its authors document it, spelled out on the CPU, and a runner over it.

It stands for no kernel: it shows that what the runner asks of one is right. The kernels are compared in `tests/gpu`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from sie_flash.kernels import Bounds, Kernel, Window
from sie_flash.loop import VarlenLoop
from sie_flash.runners import VarlenRunner
from sie_pytorch.forward import RunnerContext


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    queries: Bounds,
    keys: Bounds,
    scale: float | None,
    window: Window,
) -> torch.Tensor:
    """Attend sequence by sequence in float64: a query at i sees keys from i - left to i + right, both included.

    Queries and keys are counted from the ends of their sequences. A query that sees none gets zeros. Of each sequence
    only the first `longest` tokens are computed, as a kernel's grid reaches no farther.
    """
    assert queries.cu_seqlens.dtype == keys.cu_seqlens.dtype == torch.int32
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    output = torch.full_like(query, float("nan"))
    groups = query.shape[1] // key.shape[1]
    left, right = (side if side >= 0 else queries.longest + keys.longest for side in window)
    for rows, seen_rows in zip(_places(queries), _places(keys), strict=True):
        q, k, v = (
            states[place].double().transpose(0, 1)
            for states, place in ((query, rows), (key, seen_rows), (value, seen_rows))
        )
        k, v = (states.repeat_interleave(groups, dim=0) for states in (k, v))
        distance = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1] - torch.arange(k.shape[1])
        seen = (distance <= left) & (-distance <= right)
        scores = (q @ k.transpose(1, 2) * (q.shape[2] ** -0.5 if scale is None else scale)).masked_fill(
            ~seen, float("-inf")
        )
        weights = scores.softmax(-1).masked_fill(~seen, 0)
        output[rows] = (weights @ v).transpose(0, 1).to(query.dtype)
    return output


def _places(bounds: Bounds) -> list[slice]:
    return [slice(start, min(stop, start + bounds.longest)) for start, stop in pairwise(bounds.cu_seqlens.tolist())]


PLAIN = Kernel("plain", attend, dtypes=frozenset({torch.float32, torch.bfloat16, torch.float16}))


class PlainRunner(VarlenRunner):
    """Attends by the contract alone."""

    def __init__(self, context: RunnerContext) -> None:
        super().__init__(context, PLAIN)


class PlainLoop(VarlenLoop):
    """The loop that attends by the contract alone."""

    def __init__(self, context: RunnerContext) -> None:
        super().__init__(context, PLAIN)

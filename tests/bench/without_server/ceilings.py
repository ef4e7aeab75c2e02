"""How fast this machine does each kind of MiniLM's work by itself: what a forward pass could reach at most.

`python -m tests.bench.without_server.ceilings` reads a job from stdin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tests.bench.processes.children import answer, read_job

ROWS = 2048
LAYERS, HIDDEN, INNER, HEADS = 6, 384, 1536, 12
PRODUCTS = {
    "query, key, value": (HIDDEN, 3 * HIDDEN),
    "attention output": (HIDDEN, HIDDEN),
    "up": (HIDDEN, INNER),
    "down": (INNER, HIDDEN),
}
"""MiniLM's matrix products of a layer, `in × out`, projections joined where they share their input."""
FLOPS_A_TOKEN = 2 * LAYERS * sum(rows * columns for rows, columns in PRODUCTS.values())


def best(calls: Sequence[Callable[[], object]], seconds: float = 0.3) -> float:
    """Return the least seconds any of several ways to do the same takes."""
    least = float("inf")
    for call in calls:
        call()
        end = time.perf_counter() + seconds
        while True:
            started = time.perf_counter()
            call()
            ended = time.perf_counter()
            least = min(least, ended - started)
            if ended > end:
                break
    return least


def products(dtype: torch.dtype) -> dict[str, Any]:
    """Measure the matrix-product limit: tokens a second if MiniLM were nothing but its products, each at its best."""
    shapes = {}
    for name, (inner, outer) in PRODUCTS.items():
        rows = torch.randn(ROWS, inner).to(dtype)
        weight = torch.randn(outer, inner).to(dtype)
        shapes[name] = best(_ways(rows, weight))
    seconds = LAYERS * sum(shapes.values())
    return {"tokens_s": ROWS / seconds, "gflops": FLOPS_A_TOKEN * ROWS / seconds / 1e9, "seconds": shapes}


def _ways(rows: torch.Tensor, weight: torch.Tensor) -> list[Callable[[], object]]:
    turned = weight.t().contiguous()
    ways: list[Callable[[], object]] = [lambda: F.linear(rows, weight), lambda: torch.mm(rows, turned)]
    operators = torch.ops.mkldnn
    if hasattr(operators, "_reorder_linear_weight"):
        packed = operators._reorder_linear_weight(weight, ROWS)
        ways.append(lambda: operators._linear_pointwise(rows, packed, None, "none", [], ""))
    return ways


def attention(dtype: torch.dtype) -> float:
    """Measure FLOP/s of attention at its best: many sequences of one length."""
    rates = []
    for length in (16, 64, 256):
        count = ROWS // length
        states = [torch.randn(count, HEADS, length, HIDDEN // HEADS).to(dtype) for _ in range(3)]
        seconds = best([lambda states=states: F.scaled_dot_product_attention(*states)])  # type: ignore[misc]
        rates.append(4 * count * HIDDEN * length**2 / seconds)
    return max(rates)


def elementwise(dtype: torch.dtype) -> dict[str, float]:
    """Measure elements a second of what is bound by memory, over a batch's own shapes."""
    states, inner = torch.randn(ROWS, HIDDEN).to(dtype), torch.randn(ROWS, INNER).to(dtype)
    weight, target, other = torch.ones(HIDDEN, dtype=dtype), torch.empty_like(states), torch.randn_like(states)
    table, ids = torch.randn(30522, HIDDEN).to(dtype), torch.randint(0, 30522, (ROWS,))
    timed = {
        "layer norm": (states, lambda: F.layer_norm(states, (HIDDEN,), weight, weight)),
        "activation": (inner, lambda: F.gelu(inner)),
        "copies": (states, lambda: target.copy_(states)),
        "sums": (states, lambda: torch.add(states, other, out=target)),
        "embeddings": (states, lambda: F.embedding(ids, table)),
    }
    return {name: each.numel() / best([call]) for name, (each, call) in timed.items()}


def measure(dtype: torch.dtype) -> dict[str, Any]:
    """Measure every ceiling in one precision."""
    return {"products": products(dtype), "attention_flops_s": attention(dtype), "elements_s": elementwise(dtype)}


def main() -> None:
    from sie_pytorch.forward.checkpoint.precision import why_not_bfloat16

    torch.set_num_threads(read_job()["threads"])
    dtypes = {"float32": torch.float32}
    if why_not_bfloat16() is None:
        dtypes["bfloat16"] = torch.bfloat16
    with torch.inference_mode():
        answer({name: measure(dtype) for name, dtype in dtypes.items()})


if __name__ == "__main__":
    main()

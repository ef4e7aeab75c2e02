"""SIE's forward pass by itself on mixed lengths: tokens a second, and where the time goes, operation by operation.

`python -m tests.bench.without_server.runner_speed` reads a job from stdin.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from sie_pytorch.forward import Batch
from torch.profiler import ProfilerActivity, profile, record_function

from tests.bench.processes.children import answer, read_job
from tests.bench.without_server.ceilings import HIDDEN, INNER, LAYERS, PRODUCTS

GROUPS = {
    "products": ("linear", "addmm", "::mm", "::bmm", "matmul"),
    "attention": ("scaled_dot_product", "softmax"),
    "layer norm": ("layer_norm",),
    "activation": ("gelu", "silu", "relu"),
    "embeddings": ("embedding", "index_select"),
    "sums": ("::add", "::mul", "::sub", "::div"),
    "copies": ("copy_", "::cat", "::clone", "::contiguous", "::empty", "::fill_", "::stack"),
    "views": ("view", "permute", "transpose", "::select", "::slice", "unbind", "unsqueeze", "::split", "as_strided",
              "::to", "reshape", "::t", "expand", "narrow", "alias", "detach", "squeeze", "chunk"),
}  # fmt: skip
"""Operations by parts of their names, the first group that matches."""
MEMORY_BOUND = ("copies", "sums")
PYTHON = "Python between operations"
OTHER = "other operations"
MARK = "forward passes"
STAGES = {
    "query, key, value": "products: query, key, value",
    "attention output": "products: attention output",
    "up, activation": "products: up",
    "down": "products: down",
    "attention": "attention",
    "attention norm": "layer norm",
    "output norm": "layer norm",
    "entering and leaving": "copies",
}
"""Stages of compiled kernels, which a profiler of PyTorch sees nothing of, and their groups."""
WAITING = "threads that wait for another"


def batches(encoded: list[list[int]], tokens: int) -> Iterator[Batch]:
    """Pack sequences, in the order they come, into batches of about `tokens` tokens."""
    taken: list[list[int]] = []
    for ids in encoded:
        taken.append(ids)
        if sum(map(len, taken)) >= tokens:
            yield _pack(taken)
            taken = []
    if taken:
        yield _pack(taken)


def _pack(sequences: list[list[int]]) -> Batch:
    lengths = [len(ids) for ids in sequences]
    starts = torch.tensor([0, *lengths]).cumsum(0, dtype=torch.int32)
    positions = torch.cat([torch.arange(length) for length in lengths])
    return Batch(torch.tensor([one for ids in sequences for one in ids]), positions, starts)


def group_of(operation: str) -> str:
    """Name the group of a profiled operation."""
    if operation == MARK:
        return PYTHON
    return next((name for name, parts in GROUPS.items() if any(part in operation for part in parts)), OTHER)


def work(packed: list[Batch]) -> dict[str, float]:
    """Count what the batches need at least: tokens of products, FLOPs of attention, elements of the rest."""
    tokens = sum(len(batch.ids) for batch in packed)
    pairs = sum(int((batch.cu_seqlens.diff() ** 2).sum()) for batch in packed)
    return {
        "products": tokens,
        **{f"products: {name}": tokens for name in PRODUCTS},
        "attention": 4.0 * HIDDEN * LAYERS * pairs,
        "layer norm": tokens * HIDDEN * (2 * LAYERS + 1),
        "activation": tokens * INNER * LAYERS,
        "embeddings": tokens * HIDDEN * 3,
    }


def main() -> None:
    job = read_job()
    torch.set_num_threads(job["threads"])
    runner = build(Path(job["weights"]), job["threads"])
    packed = list(batches(tokenise(job["texts"], Path(job["weights"])), job["batch_tokens"]))
    forward_all(runner, packed)
    tokens = sum(len(batch.ids) for batch in packed)
    rates = [tokens / forward_all(runner, packed) for _ in range(job["repeats"])]
    info = runner.info
    found = {"runner": info.name, "precision": info.precision, "tokens_s": rates}
    if job.get("profile", True):
        groups, elements = profiled(runner, packed, job["threads"])
        found |= {"batches": len(packed), "tokens": tokens, "profile_s": groups}
        found["work"] = {**elements, **work(packed)}
    answer(found)


def profiled(runner: Any, packed: list[Batch], threads: int) -> tuple[dict[str, float], dict[str, float]]:
    """Give the wall seconds of each group, those within compiled kernels included, and the elements gone over."""
    kernels = getattr(runner._runner, "start_stopwatch", None)
    stop = kernels() if kernels else None
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler, record_function(MARK):
        forward_all(runner, packed)
    groups, elements = sum_up(profiler.key_averages(group_by_input_shape=True))
    if stop is not None:
        stages, called = stop()
        groups[PYTHON] -= called
        groups[WAITING] = called - sum(stages.values()) / threads
        for name, seconds in stages.items():
            group = STAGES.get(name, OTHER)
            groups[group] = groups.get(group, 0.0) + seconds / threads
    return groups, elements


def sum_up(events: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Add up each group's seconds, and the elements that copies and sums went over."""
    seconds: dict[str, float] = {}
    elements: dict[str, float] = {}
    for event in events:
        group = group_of(event.key)
        seconds[group] = seconds.get(group, 0.0) + event.self_cpu_time_total / 1e6
        if group in MEMORY_BOUND:
            largest = max((math.prod(shape) for shape in event.input_shapes if shape), default=0)
            elements[group] = elements.get(group, 0.0) + event.count * largest
    return seconds, elements


def forward_all(runner: Any, packed: list[Batch]) -> float:
    """Run every batch; return the seconds."""
    started = time.perf_counter()
    for batch in packed:
        runner.forward(batch)
    return time.perf_counter() - started


def build(weights: Path, threads: int) -> Any:
    """Build the runner that `sie serve` would, from what the plugins register."""
    from sie_pytorch.forward import build_runner

    from sie_core.catalog.cards import read_card
    from sie_core.cli.composition.compose import find_plugins
    from sie_core.contracts import Device
    from sie_core.settings import load_settings

    settings = load_settings()
    specs = find_plugins(settings).runners
    precision = settings.default_compute_precision
    return build_runner(
        weights, read_card(weights), Device("cpu"), precision, runner_specs=specs, threads=threads,
        runner=settings.runner,
    )  # fmt: skip


def tokenise(texts: list[str], weights: Path) -> list[list[int]]:
    """Turn texts into ids, cut as sentence-transformers cuts them."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(weights / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return [encoding.ids for encoding in tokenizer.encode_batch(texts)]


if __name__ == "__main__":
    main()

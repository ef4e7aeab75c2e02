"""Forward passes alone, over the same batches: each runner packed, and transformers' own model padded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as tf
from sie_pytorch.forward import Batch, RunnerInfo, build_runner

from sie_core.catalog import read_card
from sie_core.contracts import Device, RunnerSpec
from tests.bench.gpu.loads import batches

BATCH_TOKENS = 16384


def tokenize(folder: Path, texts: list[str]) -> list[list[int]]:
    """Turn texts into token ids."""
    tokenizer = tf.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids: list[list[int]] = tokenizer(texts, truncation=True)["input_ids"]
    return ids


def pack(rows: Sequence[list[int]], device: torch.device) -> Batch:
    """Lay sequences one after another."""
    lengths = np.array([len(row) for row in rows])
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)
    ids = torch.from_numpy(np.concatenate([np.array(row) for row in rows]))
    return Batch(ids.to(device), torch.from_numpy(positions).to(device), torch.from_numpy(bounds))


def cut(ids: list[list[int]]) -> list[list[list[int]]]:
    """Cut sequences into batches of `BATCH_TOKENS`."""
    parts = batches([len(row) for row in ids], BATCH_TOKENS)
    return [[ids[number] for number in part] for part in parts]


Pass = Callable[[Sequence[list[list[int]]]], Callable[[], object]]
"""From batches of sequences to what runs them all, their tensors ready on the device."""


def packed_pass(folder: Path, device: Device, precision: str, specs: Sequence[RunnerSpec]) -> tuple[RunnerInfo, Pass]:
    """Load the first runner of `specs` that serves, or a padded one; return which, and its pass."""
    runner = build_runner(folder, read_card(folder), device, precision, runner_specs=specs)
    place = torch.device(str(device))

    def prepare(parts: Sequence[list[list[int]]]) -> Callable[[], object]:
        packed = [pack(rows, place) for rows in parts]
        return lambda: [runner.forward(each) for each in packed]

    return runner.info, prepare


def padded_pass(folder: Path, device: Device, dtype: torch.dtype) -> Pass:
    """Load transformers' own model with fused attention, and pad every batch to its longest text."""
    place = torch.device(str(device))
    model: Any = tf.AutoModel.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True)
    model = model.eval().to(place)

    def pad(rows: list[list[int]]) -> dict[str, torch.Tensor]:
        longest = max(len(row) for row in rows)
        ids = [row + [model.config.pad_token_id or 0] * (longest - len(row)) for row in rows]
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        return {"input_ids": torch.tensor(ids, device=place), "attention_mask": torch.tensor(mask, device=place)}

    @torch.inference_mode()
    def run(padded: list[dict[str, torch.Tensor]]) -> None:
        for arguments in padded:
            model(**arguments)

    def prepare(parts: Sequence[list[list[int]]]) -> Callable[[], object]:
        padded = [pad(rows) for rows in parts]
        return lambda: run(padded)

    return prepare


def product_flops(folder: Path) -> int:
    """Count the FLOPs a token costs in matrix products: two a weight of every linear layer."""
    config = tf.AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        model = tf.AutoModel.from_config(config)
    pooler = getattr(model, "pooler", None)
    left_out = set(pooler.modules()) if pooler is not None else set()
    layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear) and layer not in left_out]
    return 2 * sum(layer.weight.numel() for layer in layers)

"""Texts in, vectors out: SIE's whole engine, and sentence-transformers."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from sie_core.contracts import InferenceRequest, Item, LoadWait
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.plugins import discover
from sie_core.settings import load_settings

MODEL = "bench/model"
REQUEST_TEXTS = 64
IN_FLIGHT = 128
LOAD_WAIT_S = 600.0
BATCH_SIZES = (32, 128, 512)
"""Of sentence-transformers, whose default is the first; the fastest counts."""


def sentence_transformers_seconds(
    folder: Path, device: str, precision: str, loads: dict[str, list[str]], repeats: int
) -> dict[str, list[float]]:
    """Time `encode` over the texts of each load, at the batch size that is fastest for it."""
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(
        str(folder), device=device, local_files_only=True, model_kwargs={"dtype": getattr(torch, precision)}
    )

    def once(texts: list[str], size: int) -> float:
        started = time.perf_counter()
        model.encode(texts, batch_size=size, show_progress_bar=False)
        return time.perf_counter() - started

    found = {}
    for kind, texts in loads.items():
        once(texts, BATCH_SIZES[-1])
        found[kind] = min(([once(texts, size) for _ in range(repeats)] for size in BATCH_SIZES), key=min)
    return found


async def engine_seconds(
    folder: Path,
    device: str,
    precision: str,
    loads: dict[str, list[str]],
    repeats: int,
    scratch: Path,
    config: Mapping[str, Any] = {},
) -> tuple[dict[str, list[float]], str]:
    """Time the engine over the texts of each load, many requests at once; return also which runner served.

    `config` is what the model's config says beside its weights.
    """
    models = scratch / "models"
    models.mkdir(parents=True)
    (models / "model.yaml").write_text(yaml.safe_dump({"sie_id": MODEL, "weights_path": str(folder), **config}))
    settings = load_settings(
        device=device, models_dir=models, local_cache=scratch / "cache", hf_fallback=False,
        default_compute_precision=precision,
    )  # fmt: skip
    plugins = discover(settings, BUILTINS)
    engine = build_engine(settings, plugins)
    await engine.start()
    try:
        found = {}
        for kind, texts in loads.items():
            await _encode(engine, texts)
            found[kind] = [await _encode(engine, texts) for _ in range(repeats)]
        return found, engine.model(MODEL).notes["runner"]
    finally:
        await engine.close()


_numbers = itertools.count()


async def _encode(engine: Engine, texts: list[str]) -> float:
    """Send the texts in requests, `IN_FLIGHT` of them at once; return the seconds until the last answer."""
    free = asyncio.Semaphore(IN_FLIGHT)

    async def one(part: list[str]) -> None:
        async with free:
            items = [Item(text=text) for text in part]
            request = InferenceRequest(
                MODEL, "encode", items, request_id=f"b{next(_numbers)}", load_wait=LoadWait(LOAD_WAIT_S)
            )
            await engine.infer(request)

    started = time.perf_counter()
    parts = [texts[start : start + REQUEST_TEXTS] for start in range(0, len(texts), REQUEST_TEXTS)]
    await asyncio.gather(*(one(part) for part in parts))
    return time.perf_counter() - started

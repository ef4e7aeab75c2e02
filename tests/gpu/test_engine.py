"""Whole engines on a GPU: texts in, vectors out, against sentence-transformers on the same files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer import modules as st

from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.plugins import discover
from sie_core.settings import load_settings
from tests.gpu.device import CAPABLE, NEEDS_GPU, NEEDS_MINILM
from tests.pytorch.bare import minilm
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import reference, save_encoder
from tests.pytorch.models import ARCHITECTURES, HIDDEN
from tests.pytorch.test_serving import MINILM, dense, infer

pytestmark = NEEDS_GPU

TEXTS = make_texts(40, 20, seed=31)
LEAST_COSINE = {"float16": 0.9995, "float32": 0.999999}
ALLOWANCE = 64 * 2**20
"""Bytes left to a batch that wants more than twice as many."""

StartEngine = Callable[..., Awaitable[Engine]]


@pytest.fixture
async def start_engine(tmp_path: Path) -> AsyncIterator[StartEngine]:
    async with AsyncExitStack() as engines:

        async def start(precision: str, folder: Path | None = None) -> Engine:
            models = tmp_path / f"models-{precision}"
            models.mkdir()
            if folder is not None:
                config = {"sie_id": "test/tiny", "weights_path": str(folder)}
                (models / "tiny.yaml").write_text(yaml.safe_dump(config))
            settings = load_settings(
                device="cuda", models_dir=models, local_cache=tmp_path / "cache", hf_fallback=False,
                default_compute_precision=precision,
            )  # fmt: skip
            plugins = discover(settings, BUILTINS)
            engine = build_engine(settings, plugins)
            await engine.start()
            engines.push_async_callback(engine.close)
            return engine

        yield start


def least_cosine(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    assert ours.shape == theirs.shape
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return float(((ours * theirs).sum(axis=1) / norms).min())


@NEEDS_MINILM
@pytest.mark.parametrize("precision", ["float16", "float32"])
async def test_real_weights_give_the_reference_s_vectors(precision: str, start_engine: StartEngine) -> None:
    engine = await start_engine(precision)
    replies = await asyncio.gather(*(infer(engine, MINILM, text) for text in TEXTS), infer(engine, MINILM, *TEXTS))
    expected = reference(minilm()).encode(TEXTS)
    assert least_cosine(dense(replies[-1]), expected) >= LEAST_COSINE[precision]
    alone = np.concatenate([dense(reply) for reply in replies[:-1]])
    assert least_cosine(alone, expected) >= LEAST_COSINE[precision]
    notes = engine.model(MINILM).notes
    assert notes["precision"].startswith(f"{precision}: ")
    kernels = ("varlen-loop", "flash-attn", "torch-varlen")
    assert notes["runner"] in (kernels if CAPABLE and precision == "float16" else ("packed",)), notes


@pytest.mark.parametrize("name", ["modernbert", "qwen3", "deberta-v2"])
async def test_random_weights_give_the_reference_s_vectors(
    name: str, start_engine: StartEngine, checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    mode = "lasttoken" if ARCHITECTURES[name].causal else "mean"
    model = save_encoder(checkpoint(name), tmp_path / "tiny", st.Pooling(HIDDEN, mode), st.Normalize(), length=70)
    engine = await start_engine("float32", tmp_path / "tiny")
    assert least_cosine(dense(await infer(engine, "test/tiny", *TEXTS)), model.encode(TEXTS)) >= 0.9999


@NEEDS_MINILM
async def test_a_batch_that_does_not_fit_is_split_and_right(start_engine: StartEngine) -> None:
    engine = await start_engine("float16")
    texts = make_texts(96, 2000, seed=9) + ["a search engine ranks documents " * 60] * 64
    expected = dense(await infer(engine, MINILM, *texts))
    torch.cuda.empty_cache()
    device = torch.cuda.current_device()
    allowed = (torch.cuda.memory_reserved(device) + ALLOWANCE) / torch.cuda.mem_get_info(device)[1]
    torch.cuda.set_per_process_memory_fraction(allowed, device)
    try:
        split = dense(await infer(engine, MINILM, *texts))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    labels = {"model": MINILM, "reason": "out_of_memory"}
    assert (engine.metrics.registry.get_sample_value("sie_batch_failures_total", labels) or 0) >= 1
    assert least_cosine(split, expected) >= 0.9999
    assert engine.health().live_problem is None

"""Short requests run beside long batches of another model on a stream of higher priority; no number changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sie_pytorch.devices import probes

from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.plugins import discover
from sie_core.settings import load_settings
from tests.bench.gpu.shapes import BERT_BASE, write_model
from tests.gpu.device import NEEDS_GPU
from tests.pytorch.corpus import make_texts
from tests.pytorch.test_serving import dense, infer

pytestmark = NEEDS_GPU

SHORT, LONG = "test/short", "test/long"
SHORTS = make_texts(40, 20, seed=31)
LONGS = ["a search engine ranks documents " * 60] * 256
TOLERANCE = 1e-5


@asynccontextmanager
async def engine_of_two(folder: Path) -> AsyncIterator[Engine]:
    """Run an engine that serves the weights of the folder as two models."""
    models = folder / "models"
    models.mkdir()
    for model in (SHORT, LONG):
        config = {"sie_id": model, "weights_path": str(folder / "weights")}
        (models / f"{model.replace('/', '-')}.yaml").write_text(yaml.safe_dump(config))
    # In float32 a full batch of this shape takes tens of milliseconds.
    settings = load_settings(
        device="cuda", models_dir=models, local_cache=folder / "cache", hf_fallback=False,
        default_compute_precision="float32", priority_stream=True,
    )  # fmt: skip
    engine = build_engine(settings, discover(settings, BUILTINS))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def test_beside_long_batches_short_texts_get_the_vectors_they_get_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(BERT_BASE, tmp_path / "weights", torch.float32)
    beside: list[int] = []
    stream = probes._stream

    def used(index: int) -> Any:
        beside.append(index)
        return stream(index)

    monkeypatch.setattr(probes, "_stream", used)
    async with engine_of_two(tmp_path) as engine:
        long = dense(await infer(engine, LONG, *LONGS))
        alone = [dense(await infer(engine, SHORT, text)) for text in SHORTS]
        assert not beside
        flood = [asyncio.create_task(infer(engine, LONG, *LONGS)) for _ in range(8)]
        compared = 0
        while not all(task.done() for task in flood):
            place = compared % len(SHORTS)
            np.testing.assert_allclose(dense(await infer(engine, SHORT, SHORTS[place])), alone[place], atol=TOLERANCE)
            compared += 1
        for task in flood:
            np.testing.assert_allclose(dense(await task), long, atol=TOLERANCE)
        assert engine.health().ready_problem is None
    assert beside, f"none of {compared} short requests ran beside a long batch"

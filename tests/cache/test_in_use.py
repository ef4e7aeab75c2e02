"""A served model's weights stay in the local cache, whatever its limits are, until the model is unloaded."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sie_core.cache import DiskCache, DiskLimits
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.plugins import discover
from sie_core.settings import load_settings

CONFIG = """\
sie_id: org/m
hf_id: org/m
tasks: { encode: { dense: { dim: 8 } } }
profiles: { default: { adapter_path: fake } }
"""


@pytest.fixture
async def engine(cached: Callable[..., Path], tmp_path: Path) -> Any:
    cached()
    (tmp_path / "models").mkdir()
    (tmp_path / "models/m.yaml").write_text(CONFIG)
    settings = load_settings(models_dir=tmp_path / "models", local_cache=tmp_path / "cache", hf_fallback=False)
    plugins = discover(settings, BUILTINS)
    engine = build_engine(settings, plugins)
    await engine.start()
    yield engine
    await engine.close()


async def test_a_loaded_models_weights_are_in_use_until_it_is_unloaded(engine: Engine, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", dedicated=True)
    await asyncio.wait_for(engine.load("org/m"), 60)
    assert cache.in_use("org/m")
    assert cache.shrink(DiskLimits(max_bytes=1)) == []
    await asyncio.wait_for(engine.unload("org/m"), 60)
    gc.collect()
    assert not cache.in_use("org/m")
    assert [each.repo_id for each in cache.shrink(DiskLimits(max_bytes=1))] == ["org/m"]

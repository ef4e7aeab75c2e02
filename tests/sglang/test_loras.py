"""LoRA adapters by request: which the engine is given, when it is told to drop them, and what it gets again."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from sie_sdk.wire import unpack
from sie_sglang.loras import DEFAULT_RANK

from sie_core.contracts import InferenceError, InferenceRequest, Item, LoadWait
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.plugins import discover
from sie_core.settings import load_settings
from tests.pytorch.models import HIDDEN
from tests.pytorch.pairs.support import change_json
from tests.sglang.conftest import write_lora

MODEL = "test/base"
LIMIT = 10
BOUND_S = 60.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def adapters(embedders: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders by name: `l0` to `l10`, and ones that do not fit."""
    folder, base = tmp_path_factory.mktemp("loras"), embedders / "test" / "qwen3"
    made = {"l0": write_lora(base, folder / "l 0", 0)}
    for place in range(1, LIMIT + 1):
        made[f"l{place}"] = Path(shutil.copytree(made["l0"], folder / f"l {place}"))
    for name, config in {"scaled": {"use_rslora": True}, "patterned": {"alpha_pattern": {"q_proj": 3}}}.items():
        made[name] = Path(shutil.copytree(made["l0"], folder / name))
        change_json(made[name] / "adapter_config.json", **config)
    made["ranked"] = write_lora(base, folder / "ranked", 1, r=DEFAULT_RANK + 1)
    made["foreign"] = write_lora(folder_of_another_size(base, folder / "wide"), folder / "foreign", 2)
    made["gone"] = folder / "gone"
    return made


def folder_of_another_size(base: Path, folder: Path) -> Path:
    """Copy a model's config with layers of another size."""
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    change_json(folder / "config.json", intermediate_size=64)
    import transformers as tf

    tf.AutoModel.from_config(tf.AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    return folder


@pytest.fixture
async def engine(
    embedders: Path, adapters: dict[str, Path], engine_python: Path, tmp_path: Path
) -> AsyncIterator[Engine]:
    config = {
        "sie_id": MODEL,
        "weights_path": str(embedders / "test" / "qwen3"),
        "loras": {name: {"weights_path": str(folder)} for name, folder in adapters.items()},
        "profiles": {"default": {"adapter_path": "sglang", "compute_precision": "float32"}},
    }
    models = tmp_path / "models"
    models.mkdir()
    (models / "base.yaml").write_text(yaml.safe_dump(config))
    settings = load_settings(
        models_dir=models, local_cache=tmp_path / "cache", hf_fallback=False, max_loras_per_model=LIMIT
    )
    engine = build_engine(settings, discover(settings, BUILTINS))
    await engine.start()
    yield engine
    await engine.close()


async def vector(engine: Engine, lora: str | None) -> np.ndarray:
    request = InferenceRequest(
        MODEL, "encode", [Item(text="one")], request_id=f"r{next(_numbers)}", load_wait=LoadWait(BOUND_S),
        options={"lora": lora} if lora else {},
    )  # fmt: skip
    reply = await asyncio.wait_for(engine.infer(request), BOUND_S)
    assert reply.lora == lora
    return np.asarray(unpack(reply.items[0])["dense"]["values"])


async def after_restart(engine: Engine, lora: str) -> np.ndarray:
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                return await vector(engine, lora)
            except InferenceError as error:
                if not error.spec.retryable:
                    raise
                await asyncio.sleep(0.05)


async def told(orders: Path, count: int) -> list[str]:
    """Wait until the engine was given as many orders about adapters; list all of them."""
    deadline = time.monotonic() + BOUND_S
    while True:
        lines = (orders / "loras").read_text().splitlines()
        if len(lines) >= count:
            return lines
        assert time.monotonic() < deadline, lines
        await asyncio.sleep(0.02)


async def test_an_eleventh_evicts_one_and_an_engine_that_is_started_again_gets_the_others(
    engine: Engine, orders: Path
) -> None:
    names = [f"l{place}" for place in range(LIMIT + 1)]
    plain = await vector(engine, None)
    right = {name: await vector(engine, name) for name in names[:LIMIT]}
    assert len({made.tobytes() for made in (plain, *right.values())}) == LIMIT + 1, "each has its own"
    await vector(engine, names[0])
    right[names[LIMIT]] = await vector(engine, names[LIMIT])
    lines = await told(orders, LIMIT + 2)
    assert [line.split()[0] for line in lines].count("/load_lora_adapter") == LIMIT + 1
    assert lines[-1] == "/unload_lora_adapter lora-1", "the longest unused one"
    (orders / "die").touch()
    with pytest.raises(InferenceError):
        await vector(engine, names[2])
    again = await after_restart(engine, names[2])
    np.testing.assert_array_equal(again, right[names[2]])
    given = (await told(orders, 2 * LIMIT + 2))[LIMIT + 2 :]
    assert {line.split()[1] for line in given} == {f"lora-{place}" for place in (0, *range(2, LIMIT + 1))}
    np.testing.assert_array_equal(await vector(engine, names[LIMIT]), right[names[LIMIT]])
    np.testing.assert_array_equal(await vector(engine, None), plain)


async def test_one_that_does_not_fit_or_is_not_there_is_the_requests_error(engine: Engine) -> None:
    faults = {
        "scaled": "`use_rslora`, which the engine ignores",
        "patterned": "`alpha_pattern`, which the engine ignores",
        "ranked": rf"rank is {DEFAULT_RANK + 1}, .* at most {DEFAULT_RANK} \(`max_lora_rank`\)",
        "foreign": "made for another base",
        "gone": "gone",
        "someone/unknown": "someone/unknown",
    }
    for name, says in faults.items():
        with pytest.raises(InferenceError, match=says) as failed:
            await vector(engine, name)
        assert failed.value.code == "INVALID_INPUT"
    assert len(await vector(engine, None)) == HIDDEN

"""Models that are not loaded: what the files of their weights tell, where these are on this machine."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from sie_core.contracts import InferenceError, ModelCard, ModelConfig, ModelFacts, WeightTierFactory
from sie_core.engine import Engine, building
from sie_core.engine.timeouts import Timeouts
from sie_core.plugins import PluginSet
from tests.engine.conftest import BOUND_S, Engines, bounded, until

BERT = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 12, "vocab_size": 30}
RERANKER = {**BERT, "architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}


def write_weights(folder: Path, config: dict[str, Any], **files: Any) -> Path:
    """Write a folder that looks like weights; nothing here loads it."""
    folder.mkdir(parents=True)
    for name, content in {"config": config, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    save_file({"weight": np.ones((2, 3), np.float32)}, folder / "model.safetensors")
    return folder


def write_config(engines: Engines, name: str, **fields: Any) -> str:
    (engines.folder / f"{name}.yaml").write_text(yaml.safe_dump({"sie_id": f"org/{name}", **fields}))
    return f"org/{name}"


def previewing(preview: str) -> Callable[[PluginSet], PluginSet]:
    """Have every family previewed by a function of this module."""

    def change(plugins: PluginSet) -> PluginSet:
        families = {
            name: dataclasses.replace(family, preview=f"{__name__}:{preview}")
            for name, family in plugins.families.items()
        }
        return dataclasses.replace(plugins, families=families)

    return change


def failing(card: ModelCard, config: ModelConfig) -> ModelFacts:
    raise RuntimeError("no such luck")


def junk(card: ModelCard, config: ModelConfig) -> dict[str, int]:
    return {"dense": 12}


def ending(card: ModelCard, config: ModelConfig) -> None:
    raise SystemExit(3)


def hanging(card: ModelCard, config: ModelConfig) -> None:
    threading.Event().wait(60)


def listed(engine: Engine) -> dict[str, Any]:
    return {model.id: model for model in engine.models()}


async def test_a_folder_of_weights_tells_its_outputs_sizes_and_operations(engines: Engines) -> None:
    write_weights(engines.folder / "plain", BERT)
    write_weights(engines.folder / "ranks", RERANKER, tokenizer_config={"model_max_length": 64})
    write_weights(engines.folder / "feels", {**RERANKER, "id2label": {"0": "NEGATIVE", "1": "POSITIVE"}})
    models = listed(await engines.start())
    plain, ranks = models["plain"], models["ranks"]
    assert (models["feels"].outputs, models["feels"].operations) == (("json",), ("extract",))
    assert (plain.outputs, plain.dims, plain.operations) == (("dense",), {"dense": 12}, ("encode", "score"))
    assert (ranks.outputs, ranks.dims, ranks.operations) == (("score",), {}, ("score",))
    assert ranks.max_sequence_length == 64
    assert (plain.state, plain.available, plain.precision) == ("available", True, None)


async def test_a_config_tells_what_the_weights_would_where_they_are_elsewhere(engines: Engines) -> None:
    told = write_config(engines, "told", hf_id="org/told", tasks={"encode": {"dense": {"dim": 7}, "sparse": {}}})
    untold = write_config(engines, "untold", hf_id="org/untold")
    models = listed(await engines.start())
    assert (models[told].outputs, models[told].dims) == (("dense", "sparse"), {"dense": 7})
    assert (models[untold].outputs, models[untold].dims, models[untold].operations) == ((), {}, ())
    assert not models[told].available


async def test_the_files_win_over_the_config_and_the_config_fills_what_they_do_not_tell(engines: Engines) -> None:
    folder = write_weights(engines.folder / "weights", {name: BERT[name] for name in ("model_type", "architectures")})
    model = write_config(
        engines, "model", weights_path=str(folder), tasks={"encode": {"dense": {"dim": 7}, "multivector": {"dim": 3}}}
    )
    described = (await engines.start()).model(model)
    assert (described.outputs, described.dims) == (("dense",), {"dense": 7})


async def test_models_whose_weights_are_here_come_first_and_are_what_a_mistyped_id_is_told_of(
    engines: Engines,
) -> None:
    write_config(engines, "embed-base", hf_id="org/embed-base")
    write_config(engines, "embed-bass", hf_id="org/embed-bass")
    write_weights(engines.folder / "org" / "embed-basalt", BERT)
    engine = await engines.start()
    order = [model.available for model in engine.models()]
    assert order == sorted(order, reverse=True)
    assert not order[-1]
    with pytest.raises(InferenceError, match=r"Did you mean org/embed-basalt or org/embed-bas"):
        engine.model("org/embed-bas")


async def test_weights_that_come_and_go_are_seen_at_a_later_look(engines: Engines) -> None:
    folder = engines.folder / "elsewhere"
    model = write_config(engines, "model", weights_path=str(folder))
    engine = await engines.start(timeouts=Timeouts(sightings_fresh_s=0.0))
    assert not engine.model(model).available
    write_weights(folder, BERT)
    await until(lambda: engine.model(model).dims == {"dense": 12})
    folder.rename(engines.folder / ".gone")
    await until(lambda: not engine.model(model).available)


async def test_a_pickle_alone_is_no_weights_and_what_is_damaged_is_told_by_the_load(engines: Engines) -> None:
    pickled = write_weights(engines.folder / "pickled", BERT)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    damaged = write_weights(engines.folder / "damaged", BERT)
    (damaged / "config.json").write_text("{")
    models = listed(await engines.start())
    assert not models["pickled"].available
    assert (models["damaged"].available, models["damaged"].outputs) == (True, ())


@pytest.mark.parametrize(
    ("preview", "problem"),
    [
        ("failing", "failed in `preview` (RuntimeError)"),
        ("missing", "failed in `preview` (AttributeError)"),
        ("ending", "failed in `preview` (SystemExit)"),
        ("junk", "returned a dict from `preview`"),
        ("hanging", "did not come back within 0.2 s from `preview`"),
    ],
)
async def test_a_preview_that_fails_is_logged_and_tells_nothing(
    engines: Engines,
    preview: str,
    problem: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    timeouts = Timeouts(preview_s=0.2 if preview == "hanging" else BOUND_S)
    write_weights(engines.folder / "plain", BERT)
    with caplog.at_level(logging.WARNING):
        models = listed(await engines.start(previewing(preview), timeouts=timeouts))
    assert (models["plain"].outputs, models["plain"].available) == ((), True)
    assert f"the model family 'cpu' {problem}" in caplog.text


async def test_tiers_that_do_not_say_that_they_answer_at_once_are_not_asked(engines: Engines) -> None:
    asked = []

    class Far:
        name = "far"

        def fetch(self, request):
            asked.append(request)

    write_config(engines, "model", hf_id="org/model")
    tier = WeightTierFactory("far", 150, lambda context: Far())
    engine = await engines.start(lambda plugins: dataclasses.replace(plugins, weight_tiers=(tier,)))
    assert not engine.model("org/model").available
    assert asked == []


async def test_a_model_without_weights_is_available(engines: Engines) -> None:
    model = engines.model("fake")
    assert (await engines.start()).model(model).available


async def test_a_start_is_ready_once_it_has_looked(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, release = [], threading.Event()

    def held(*arguments: Any) -> dict[str, Any]:
        looked.append(arguments)
        release.wait(BOUND_S)
        return {}

    monkeypatch.setattr(building, "look", held)
    engine = engines.make()
    starting = asyncio.create_task(engine.start())
    await until(lambda: looked)
    assert engine.health().ready_problem is not None
    release.set()
    await bounded(starting)
    assert engine.health().ready_problem is None

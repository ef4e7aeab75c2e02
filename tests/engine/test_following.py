"""A models folder that changes under a running engine: added, changed, removed, broken configs; no request is lost."""

import asyncio
from pathlib import Path

import pytest
from sie_fake.record import RECORD

from sie_core.catalog import build_catalog, open_folder
from sie_core.contracts import InferenceError
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine
from sie_core.engine.reloading import CatalogWatch
from sie_core.plugins import discover

from .conftest import Engines, bounded, request, until, vectors


def follow(engines: Engines, engine: Engine) -> None:
    """Have the engine see the folder as it is now."""
    settings = engines.settings()
    engine.follow(build_catalog(settings, discover(settings, BUILTINS), before=engine.catalog))


def watch(engines: Engines, engine: Engine) -> CatalogWatch:
    settings = engines.settings()
    plugins = discover(settings, BUILTINS)
    return CatalogWatch(
        open_folder(settings, plugins),
        lambda before: build_catalog(settings, plugins, before=before),
        lambda: engine.catalog,
        engine.follow,
        engine.note,
    )


async def settled(engine: Engine) -> None:
    await bounded(engine._following.settled())


async def test_an_added_model_is_served_and_others_are_not_touched(engines: Engines) -> None:
    first = engines.model("first")
    engine = await engines.start(load=[first])
    added = engines.model("added")
    with pytest.raises(InferenceError, match="No model 'test/added'"):
        await bounded(engine.infer(request(added, "text")))
    follow(engines, engine)
    await settled(engine)
    assert len((await bounded(engine.infer(request(added, "text")))).items) == 1
    assert engine.model(first).state == "loaded"
    assert RECORD.events(first, "load") == []
    assert engine.catalog.epoch == 2


async def test_a_changed_model_is_exchanged_beside_its_requests(engines: Engines) -> None:
    model = engines.model("model")
    engine = await engines.start(load=[model])
    before = vectors(await bounded(engine.infer(request(model, "text"))))[0]
    run, load = engines.hold(), engines.hold()
    engines.model("model", load_hold=str(load), run_hold=str(run), tasks={"encode": {"dense": {"dim": 5}}})
    follow(engines, engine)
    # While the new one is being loaded the old one answers.
    assert len(vectors(await bounded(engine.infer(request(model, "text"))))[0]) == len(before)
    load.off()
    await until(lambda: engine._slots.known(model).loaded.facts.dims["dense"] == 5)
    waiting = asyncio.create_task(engine.infer(request(model, "text")))
    run.off()
    assert len(vectors(await bounded(waiting))[0]) == 5
    await settled(engine)
    assert len(RECORD.events(model, "unload")) == 1


async def test_requests_in_flight_are_answered_by_the_model_they_were_given(engines: Engines) -> None:
    run = engines.hold()
    model = engines.model("model", run_hold=str(run))
    engine = await engines.start(load=[model])
    waiting = [asyncio.create_task(engine.infer(request(model, f"text {n}"))) for n in range(8)]
    await until(lambda: engine._slots.known(model).loaded.use.count >= 8)
    (engines.folder / "model.yaml").unlink()
    follow(engines, engine)
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, "text")))
    assert caught.value.code == "MODEL_NOT_FOUND"
    run.off()
    assert [len(reply.items) for reply in await bounded(asyncio.gather(*waiting))] == [1] * 8
    await settled(engine)
    assert len(RECORD.events(model, "unload")) == 1


async def test_a_broken_file_keeps_the_last_good_state_and_says_so(engines: Engines) -> None:
    model = engines.model("model")
    engine = await engines.start(load=[model])
    (engines.folder / "model.yaml").write_text("sie_id: [")
    follow(engines, engine)
    await settled(engine)
    assert len((await bounded(engine.infer(request(model, "text")))).items) == 1
    (problem,) = [each for each in engine.catalog.problems if each.source.endswith("model.yaml")]
    assert problem.message.endswith("What it said before is served on.")
    assert RECORD.events(model, "unload") == []
    engines.model("model", tasks={"encode": {"dense": {"dim": 6}}})
    follow(engines, engine)
    await settled(engine)
    assert len(vectors(await bounded(engine.infer(request(model, "text"))))[0]) == 6
    assert engine.catalog.problems == ()


async def test_a_changed_config_that_cannot_be_loaded_leaves_the_old_one_serving(engines: Engines) -> None:
    model = engines.model("model")
    engine = await engines.start(load=[model])
    engines.model("model", load_failure="CORRUPT")
    follow(engines, engine)
    await settled(engine)
    assert len((await bounded(engine.infer(request(model, "text")))).items) == 1
    info = engine.model(model)
    assert info.state == "loaded"
    assert info.last_error is not None
    assert info.last_error["code"] == "MODEL_LOAD_FAILED"


async def test_a_model_nobody_loaded_takes_its_new_config_at_its_first_request(engines: Engines) -> None:
    model = engines.model("model", load_failure="NOT_FOUND")
    engine = await engines.start()
    with pytest.raises(InferenceError, match="cannot be loaded"):
        await bounded(engine.infer(request(model, "text")))
    engines.model("model")
    follow(engines, engine)
    await settled(engine)
    assert len((await bounded(engine.infer(request(model, "text")))).items) == 1


async def test_the_watch_acts_once_a_change_has_settled(engines: Engines) -> None:
    engines.model("first")
    engine = await engines.start()
    looking = watch(engines, engine)
    await bounded(looking.look())
    await bounded(looking.look())
    epoch = engine.catalog.epoch
    for _ in range(3):
        await bounded(looking.look())
    assert engine.catalog.epoch == epoch
    engines.model("second")
    await bounded(looking.look())
    assert engine.catalog.epoch == epoch
    await bounded(looking.look())
    assert engine.catalog.epoch == epoch + 1
    assert "test/second" in engine.catalog.entries
    await bounded(looking.look())
    assert engine.catalog.epoch == epoch + 1


def test_a_folder_of_weights_that_comes_or_goes_is_a_change(engines: Engines) -> None:
    from sie_core.catalog.watching import stamp_of

    before = stamp_of(engines.folder)
    weights: Path = engines.folder / "acme" / "tiny"
    weights.mkdir(parents=True)
    assert stamp_of(engines.folder) == before
    (weights / "config.json").write_text("{}")
    there = stamp_of(engines.folder)
    assert there != before
    (weights / "notes.txt").write_text("nobody's affair")
    assert stamp_of(engines.folder) == there
    (weights / "config.json").unlink()
    assert stamp_of(engines.folder) == before


async def test_a_folder_that_vanishes_leaves_what_is_served(engines: Engines) -> None:
    model = engines.model("model")
    engine = await engines.start(load=[model])
    looking = watch(engines, engine)
    await bounded(looking.look())
    await bounded(looking.look())
    moved = engines.folder.with_name("moved")
    engines.folder.rename(moved)
    try:
        await bounded(looking.look())
        await bounded(looking.look())
        assert len((await bounded(engine.infer(request(model, "text")))).items) == 1
    finally:
        moved.rename(engines.folder)

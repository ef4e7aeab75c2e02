"""A models folder that changes under a running engine: added, changed, removed, broken configs; no request is lost."""

import asyncio
import errno
import threading
from collections.abc import Hashable
from pathlib import Path

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.record import RECORD

from sie_core.catalog import Catalog, build_catalog, open_folder
from sie_core.catalog.configs import reading
from sie_core.catalog.sources.watcher import CatalogWatch
from sie_core.contracts import InferenceError
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine
from sie_core.engine.timeouts import Timeouts
from sie_core.plugins import discover
from tests.engine.conftest import (
    BOUND_S,
    Clock,
    Engines,
    bounded,
    held,
    loads_at_work,
    loads_waiting,
    request,
    told,
    until,
    vectors,
)

MB = 1_000_000
AT_REST = ("available", "ready", "failed")


def follow(engines: Engines, engine: Engine) -> None:
    """Have the engine see the folder as it is now."""
    settings = engines.settings()
    engine.follow(build_catalog(settings, discover(settings, BUILTINS), before=engine.catalog))


def watch(engines: Engines, engine: Engine, failing: list[Exception] | None = None) -> CatalogWatch:
    """Make a watch; each rebuild first raises one of the errors in `failing`."""
    settings = engines.settings()
    plugins = discover(settings, BUILTINS)

    def rebuild(before: Catalog) -> Catalog:
        if failing:
            raise failing.pop()
        return build_catalog(settings, plugins, before=before)

    return CatalogWatch(
        open_folder(settings, plugins),
        rebuild,
        lambda: engine.catalog,
        engine.follow,
        engine.note,
    )


async def settled(engine: Engine) -> None:
    """Wait until every model is at rest, and nothing is left beside those that serve."""
    await until(lambda: all(each.serves and each.state in AT_REST for each in engine.status().models))


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
    await until(lambda: engine.model(model).dims["dense"] == 5)
    waiting = asyncio.create_task(engine.infer(request(model, "text")))
    run.off()
    assert len(vectors(await bounded(waiting))[0]) == 5
    await settled(engine)
    assert len(RECORD.events(model, "unload")) == 1


async def test_a_model_that_moves_to_another_pool_is_not_loaded_anew(engines: Engines) -> None:
    model = engines.model("model")
    engine = await engines.start(load=[model])
    with (engines.folder / "model.yaml").open("a") as config:
        config.write("pool: l4\n")
    follow(engines, engine)
    await settled(engine)
    assert engine.catalog.resolve(model).config.pool == "l4"
    assert RECORD.events(model, "load") == []


async def test_requests_in_flight_are_answered_by_the_model_they_were_given(engines: Engines) -> None:
    run = engines.hold()
    model = engines.model("model", run_hold=str(run))
    engine = await engines.start(load=[model])
    waiting = [asyncio.create_task(engine.infer(request(model, f"text {n}"))) for n in range(8)]
    await until(lambda: told(engine, model).leases >= 8)
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


async def test_a_changed_config_that_could_not_be_loaded_for_now_is_tried_again(
    engines: Engines,
) -> None:
    model = engines.model("model")
    engine = await engines.start(load=[model], timeouts=Timeouts(cooldown_s={"NETWORK": 0.0}))
    engines.model("model", load_failure="NETWORK", load_failure_times=2, tasks=size(5))
    follow(engines, engine)
    await settled(engine)
    assert len(vectors(await bounded(engine.infer(request(model, "text"))))[0]) == 5
    assert engine.model(model).last_error is None
    assert held(engine) == [model]


async def test_a_model_that_comes_back_is_not_of_a_config_that_is_gone(engines: Engines) -> None:
    model = engines.model("model")
    engine = await engines.start(load=[model])
    engines.model("model", load_failure="GATED")
    follow(engines, engine)
    await settled(engine)
    assert await bounded(engine.unload(model))
    with pytest.raises(InferenceError, match="as its config asks: GATED"):
        await bounded(engine.infer(request(model, "text")))


async def test_a_model_nobody_loaded_takes_its_new_config_at_its_first_request(engines: Engines) -> None:
    model = engines.model("model", load_failure="NOT_FOUND")
    engine = await engines.start()
    with pytest.raises(InferenceError, match="cannot be loaded"):
        await bounded(engine.infer(request(model, "text")))
    engines.model("model")
    follow(engines, engine)
    await settled(engine)
    assert len((await bounded(engine.infer(request(model, "text")))).items) == 1


def size(dim: int) -> dict[str, object]:
    return {"encode": {"dense": {"dim": dim}}}


async def test_a_request_that_does_not_end_holds_up_its_own_model_alone(engines: Engines) -> None:
    run = engines.hold()
    stuck, removed, other = engines.model("stuck", run_hold=str(run)), engines.model("removed"), engines.model("other")
    engine = await engines.start(load=[stuck, removed, other])
    waiting = asyncio.create_task(engine.infer(request(stuck, "text")))
    await until(lambda: RECORD.runs(stuck))
    engines.model("stuck", tasks=size(5))
    follow(engines, engine)
    await until(lambda: engine.model(stuck).dims["dense"] == 5)
    (engines.folder / "removed.yaml").unlink()
    engines.model("other", tasks=size(6))
    engines.model("stuck", tasks=size(7))  # nor does it hold up the next change of its own
    follow(engines, engine)
    await until(lambda: engine.model(other).dims["dense"] == 6)
    await until(lambda: engine.model(stuck).dims["dense"] == 7)
    await until(lambda: RECORD.events(removed, "unload"))
    assert not waiting.done()
    run.off()
    assert len(vectors(await bounded(waiting))[0]) == 8
    await settled(engine)
    assert len(RECORD.events(stuck, "unload")) == 2


async def test_the_newest_config_wins_and_nothing_stays_of_those_before(engines: Engines) -> None:
    load = engines.hold()
    model = engines.model("model")
    engine = await engines.start(load=[model])
    engines.model("model", load_hold=str(load), tasks=size(5))
    follow(engines, engine)
    await until(lambda: any(each.state == "loading" for each in engine.status().models))
    engines.model("model", tasks=size(6))
    follow(engines, engine)
    load.off()
    await settled(engine)
    assert len(vectors(await bounded(engine.infer(request(model, "text"))))[0]) == 6
    assert held(engine) == [model]
    loads, unloads = RECORD.events(model, "load"), RECORD.events(model, "unload")
    assert len(unloads) == len(loads)  # and one was loaded before


async def test_a_config_put_back_as_it_was_ends_the_load_of_the_other(engines: Engines) -> None:
    load = engines.hold()
    model = engines.model("model")
    engine = await engines.start(load=[model])
    engines.model("model", load_hold=str(load), tasks=size(5))
    follow(engines, engine)
    await until(lambda: any(each.state == "loading" for each in engine.status().models))
    engines.model("model")
    follow(engines, engine)
    load.off()
    await settled(engine)
    assert len(RECORD.events(model, "load")) == len(RECORD.events(model, "unload")) <= 1  # the other's alone
    assert len(vectors(await bounded(engine.infer(request(model, "text"))))[0]) == 8
    assert held(engine) == [model]


async def test_a_request_that_waits_for_a_load_gets_the_config_that_came_meanwhile(engines: Engines) -> None:
    load = engines.hold()
    model = engines.model("model", load_hold=str(load))
    engine = await engines.start()
    waiting = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: engine.model(model).state == "loading")
    engines.model("model", tasks=size(5))
    follow(engines, engine)
    load.off()
    assert len(vectors(await bounded(waiting))[0]) == 5
    await settled(engine)
    assert held(engine) == [model]


@pytest.mark.parametrize("what", ["changed", "removed"])
async def test_a_model_that_changes_on_its_way_out_comes_back_as_its_config_says_or_not_at_all(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    going, go = threading.Event(), threading.Event()
    unload = FakeAdapter.unload

    def slowly(adapter: FakeAdapter) -> None:
        going.set()
        assert go.wait(30)
        unload(adapter)

    monkeypatch.setattr(FakeAdapter, "unload", slowly)
    model = engines.model("model")
    clock = Clock()
    engine = await engines.start(load=[model], clock=clock, idle_evict_s=1000, timeouts=Timeouts(monitor_s=0.005))
    clock.ahead_s = 2000
    await until(going.is_set)
    waiting = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: engine.status().in_flight)
    if what == "changed":
        engines.model("model", tasks=size(5))
    else:
        (engines.folder / "model.yaml").unlink()
    follow(engines, engine)
    go.set()
    (answer,) = await bounded(asyncio.gather(waiting, return_exceptions=True))
    await settled(engine)
    kept = [each.id for each in engine.status().models if each.state == "ready"]
    queues = list(engine.status().queued)
    if what == "changed":
        assert len(vectors(answer)[0]) == 5
        assert kept == queues == held(engine) == [model]
    else:
        assert isinstance(answer, InferenceError)
        assert answer.code == "MODEL_NOT_FOUND"
        assert kept == queues == held(engine) == []


async def test_a_rebuild_that_failed_for_a_passing_reason_is_tried_again(engines: Engines) -> None:
    engine = await engines.start()
    looking = watch(engines, engine, [OSError(errno.EMFILE, "Too many open files")])
    added = engines.model("added")
    for _ in range(4):
        await bounded(looking.look())
    assert added in engine.catalog.entries
    assert engine.health().notes == ()


async def test_a_config_that_could_not_be_read_for_a_passing_reason_is_read_again(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await engines.start()
    looking = watch(engines, engine)
    added = engines.model("added")
    read, failing = reading.read_regular, [OSError(errno.EMFILE, "Too many open files")]

    def read_regular(file: Path, most: int) -> bytes:
        if failing and file.name == "added.yaml":
            raise failing.pop()
        return read(file, most)

    monkeypatch.setattr(reading, "read_regular", read_regular)
    for _ in range(2):
        await bounded(looking.look())
    assert engine.health().notes == ("SIE_MODELS_DIR: added.yaml cannot be read now: Too many open files",)
    for _ in range(2):
        await bounded(looking.look())
    assert added in engine.catalog.entries
    assert engine.health().notes == ()


async def test_a_link_to_itself_in_the_folder_is_passed_over(engines: Engines) -> None:
    engine = await engines.start()
    (engines.folder / "org").mkdir()
    for link in (engines.folder / "loop", engines.folder / "org" / "loop"):
        link.symlink_to("loop")
    added = engines.model("added")
    looking = watch(engines, engine)
    for _ in range(2):
        await bounded(looking.look())
    assert added in engine.catalog.entries


async def test_a_preload_is_tried_again_at_once_with_its_changed_config(engines: Engines) -> None:
    model = engines.model("model", load_failure="CONFIG")
    other = engines.model("other", load_failure="GATED")
    engine = await engines.start(preload_models=(model, other))
    assert model in str(engine.health().ready_problem)
    engines.model("model", tasks=size(5))
    follow(engines, engine)
    await until(lambda: model not in str(engine.health().ready_problem))
    assert other in str(engine.health().ready_problem)
    assert len(vectors(await bounded(engine.infer(request(model, "text", load_wait_s=0))))[0]) == 5


async def test_a_preload_that_goes_on_after_a_change_loads_what_is_served_now(engines: Engines) -> None:
    load = engines.hold()
    model = engines.model("model", load_failure="NETWORK", load_hold=str(load))
    engine = engines.make(preload_models=(model,), timeouts=Timeouts(cooldown_s={"NETWORK": 0.0}))
    starting = asyncio.create_task(engine.start())
    await until(lambda: engine.model(model).state == "loading")
    engines.model("model", tasks=size(5))
    follow(engines, engine)
    load.off()
    await bounded(starting)
    await until(lambda: engine.health().ready_problem is None)
    await settled(engine)
    assert engine.model(model).dims["dense"] == 5


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
    from sie_core.catalog.sources.local_folder import stamp_of

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


async def test_a_folder_that_hangs_is_told_and_followed_again_once_it_answers(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, asked = threading.Event(), []
    engine = await engines.start()
    looking = watch(engines, engine)
    looking.hung_s = 0.01
    stamp = looking.folder.stamp

    def hanging() -> Hashable:
        asked.append(threading.current_thread())
        assert go_on.wait(BOUND_S)
        return stamp()

    monkeypatch.setattr(looking.folder, "stamp", hanging)
    look = asyncio.create_task(looking.look())
    await until(lambda: engine.health().notes)
    (note,) = engine.health().notes
    assert "models folder has not answered for 0.01 s" in note
    assert len(asked) == 1
    looking.hung_s = BOUND_S
    go_on.set()
    await bounded(look)
    assert engine.health().notes == ()
    added = engines.model("added")
    for _ in range(2):
        await bounded(looking.look())
    assert added in engine.catalog.entries
    assert caplog.text.count("the models folder is not followed") == 1


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
        assert engine.health().notes == ("the models folder cannot be read now: No such file or directory",)
    finally:
        moved.rename(engines.folder)
    await bounded(looking.look())
    assert engine.health().notes == ()


async def test_a_model_that_is_removed_while_its_load_waits_for_its_turn_is_not_loaded_and_displaces_nobody(
    engines: Engines, hurried: None
) -> None:
    load = engines.hold()
    kept = engines.model("kept", memory_bytes=150 * MB)
    first = engines.model("first", load_hold=str(load))
    gone = engines.model("gone", memory_bytes=200 * MB)
    load.off()
    engine = await engines.start(load=[first, kept], device="fake", memory_limit_bytes=300 * MB)
    await bounded(engine.infer(request(kept, "text")))
    await bounded(engine.unload(first))  # what it takes is known now
    load.on()
    ahead = asyncio.create_task(engine.infer(request(first, "text")))
    await until(lambda: loads_at_work(engine))
    waiting = asyncio.create_task(engine.infer(request(gone, "text")))
    await until(lambda: loads_waiting(engine) == 1)
    (engines.folder / "gone.yaml").unlink()
    follow(engines, engine)
    with pytest.raises(InferenceError) as caught:
        await bounded(waiting)  # while the load before it is still at work
    assert caught.value.code == "MODEL_NOT_FOUND"
    await until(lambda: gone not in held(engine))
    load.off()
    assert len((await bounded(ahead)).items) == 1
    await settled(engine)
    assert RECORD.events(gone) == []
    assert engine.model(kept).state == "loaded"


async def test_a_load_that_is_cancelled_before_its_first_step_leaves_its_model_as_it_was(engines: Engines) -> None:
    model = engines.model("model")
    engine = await engines.start()
    waiting = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: held(engine) == [model])
    engines.model("model", tasks=size(5))
    follow(engines, engine)
    engines.model("model", tasks=size(6))
    follow(engines, engine)
    assert len(vectors(await bounded(waiting))[0]) == 6
    await settled(engine)
    assert held(engine) == [model]


async def test_a_changed_config_that_a_request_loaded_meanwhile_is_not_loaded_a_second_time(
    engines: Engines,
) -> None:
    model = engines.model("meanwhile")
    engine = await engines.start(load=[model], timeouts=Timeouts(cooldown_s={"NETWORK": 1.0}))
    engines.model("meanwhile", load_failure="NETWORK", load_failure_times=1, tasks=size(5))
    follow(engines, engine)
    await until(lambda: engine.model(model).last_error)
    RECORD.clear()
    assert await bounded(engine.unload(model))
    assert len(vectors(await bounded(engine.infer(request(model, "text"))))[0]) == 5
    await settled(engine)
    assert engine.model(model).state == "loaded"
    assert len(RECORD.events(model, "load")) == 1
    assert held(engine) == [model]


async def test_a_config_that_goes_while_it_cools_down_leaves_nothing_to_be_tried_again(engines: Engines) -> None:
    model = engines.model("model")
    engine = await engines.start(load=[model])
    engines.model("model", load_failure="STORAGE")
    follow(engines, engine)
    await until(lambda: engine.model(model).last_error)
    (engines.folder / "model.yaml").unlink()
    follow(engines, engine)
    await settled(engine)  # far sooner than the minute it cools down for
    assert held(engine) == []

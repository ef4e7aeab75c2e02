"""Models that are pinned while the engine runs, as a resource pool does."""

from __future__ import annotations

from sie_fake.memory import MEMORY
from sie_fake.record import RECORD

from sie_core.engine.timeouts import Timeouts
from tests.engine.conftest import bounded, until
from tests.engine.residency.test_eviction import MB, loaded, serve
from tests.engine.residency.test_rollout import follow


async def test_a_model_that_is_pinned_is_loaded_survives_pressure_and_is_let_go(engines, hurried):
    kept, *others = (engines.model(name, memory_bytes=100 * MB) for name in ("kept", "a", "b", "c"))
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB)
    engine.pin([kept])
    await until(lambda: kept in loaded(engine))
    assert engine.model(kept).pinned
    await serve(engine, *others, *others)
    assert kept in loaded(engine)
    assert MEMORY.used <= 300 * MB
    engine.pin([])
    assert not engine.model(kept).pinned
    await serve(engine, *others, *others)
    assert kept not in loaded(engine)


async def test_a_model_that_is_loaded_is_kept_from_the_moment_it_is_pinned(engines, hurried):
    kept, *others = (engines.model(name, memory_bytes=100 * MB) for name in ("kept", "a", "b", "c"))
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB)
    await serve(engine, kept)
    engine.pin([kept])
    await serve(engine, *others)
    assert kept in loaded(engine)


async def test_one_that_nobody_has_holds_up_no_other_and_those_of_the_settings_stay_pinned(engines, caplog):
    always, kept = engines.model("always"), engines.model("kept")
    engine = await engines.start(pinned_models=(always,))
    engine.pin(["no/such-model", kept])
    await until(lambda: kept in loaded(engine) and "no/such-model" in caplog.text)
    engine.pin([])
    assert engine.model(always).pinned
    await bounded(engine.close())


async def test_one_that_somebody_unloads_is_loaded_again_while_it_is_pinned(engines):
    kept = engines.model("kept")
    engine = await engines.start(preload_models=(kept,))
    engine.pin([kept])
    await bounded(engine.unload(kept))
    await until(lambda: kept in loaded(engine))
    assert [event.kind for event in RECORD.events(kept)] == ["unload", "load"]
    engine.pin([])
    assert await bounded(engine.unload(kept))
    assert kept not in loaded(engine)


async def test_one_that_comes_later_or_fails_at_first_is_loaded_when_it_can_be_and_readiness_does_not_wait(
    engines, caplog
):
    flaky = engines.model("flaky", load_failure="STORAGE", load_failure_times=2)
    engine = await engines.start(timeouts=Timeouts(cooldown_s={"STORAGE": 0.0}))
    engine.pin(["test/later", flaky])
    await until(lambda: flaky in loaded(engine) and "test/later" in caplog.text)
    assert engine.health().ready_problem is None
    later = engines.model("later")
    follow(engines, engine)
    await until(lambda: later in loaded(engine))


async def test_models_that_are_pinned_before_the_start_are_loaded_by_it(engines):
    kept, first = engines.model("kept"), engines.model("first")
    engine = engines.make(preload_models=(first,))
    engine.pin([kept])
    await bounded(engine.start())
    await until(lambda: loaded(engine) == {kept, first})

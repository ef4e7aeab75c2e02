"""LoRA adapters on a device that has not room for everything: who makes way, who stays, who is told to come back."""

import asyncio
import gc
import threading
import weakref

import pytest
from sie_fake.device import FakeProbe
from sie_fake.memory import MEMORY
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError, LoadWait, Lora, LoraConfig, ModelLoadError
from sie_core.engine.models import loras
from sie_core.engine.timeouts import Timeouts
from tests.engine.conftest import (
    BOUND_S,
    Clock,
    bounded,
    idle,
    loads_at_work,
    loads_waiting,
    queued,
    request,
    sample,
    told,
    until,
    vectors,
)

MB = 1_000_000


@pytest.fixture(autouse=True)
def afresh(hurried):
    """Nothing needs to stay for a while, and the peak of the memory is that of the test."""
    MEMORY.peak = 0


def asked(model, lora=None, **fields):
    return request(model, "text", options={"lora": lora} if lora else {}, **fields)


async def serve(engine, *asked_for):
    """Ask for each model, or model and adapter, in turn; none is in use any more when the next one is asked."""
    for each in asked_for:
        model, lora = each if isinstance(each, tuple) else (each, None)
        assert (await bounded(engine.infer(asked(model, lora)))).lora == lora
        await idle(engine)


def loaded(engine):
    return {info.id for info in engine.models() if info.state == "loaded"}


def adapters(engine, model):
    return told(engine, model).loras


async def test_the_longest_unused_model_makes_room_for_an_adapter_and_its_base_stays(engines):
    base = engines.model("base", memory_bytes=100 * MB, takes_lora=True, loras={"legal": 60 * MB})
    old, newer = (engines.model(name, memory_bytes=60 * MB) for name in ("old", "newer"))
    engine = await engines.start(device="fake", memory_limit_bytes=280 * MB)
    await serve(engine, base, old, newer)
    MEMORY.peak = 0
    await serve(engine, (base, "legal"))
    assert loaded(engine) == {base, newer}
    assert MEMORY.peak == 220 * MB
    assert engine.model(base).memory_bytes == 160 * MB
    assert sample(engine, "sie_model_evictions_total", model=old, reason="load") == 1


async def test_an_adapter_changes_the_vectors_and_its_requests_have_a_batch_of_their_own(engines):
    base = engines.model("base", takes_lora=True, loras={"legal": 4, "tax": 4})
    engine = await engines.start(device="fake", load=[base])
    answers = [vectors(await bounded(engine.infer(asked(base, lora))))[0] for lora in (None, "legal", "tax", "legal")]
    assert (answers[1] == answers[3]).all()
    assert not any((answers[a] == answers[b]).all() for a, b in ((0, 1), (0, 2), (1, 2)))


async def test_idle_adapters_go_before_their_model_and_give_their_memory_back(engines):
    base = engines.model("base", memory_bytes=100 * MB, takes_lora=True, loras={"a": 60 * MB, "b": 60 * MB})
    other = engines.model("other", memory_bytes=50 * MB)
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB)
    await serve(engine, other, (base, "a"), (base, "b"))
    assert loaded(engine) == {base}
    await serve(engine, other)
    assert loaded(engine) == {base, other}
    assert adapters(engine, base) == ("b",)
    assert MEMORY.used == 210 * MB
    await serve(engine, (base, "a"))
    assert adapters(engine, base) == ("a",)
    assert loaded(engine) == {base, other}
    assert MEMORY.used == 210 * MB


async def test_freeing_what_an_adapter_leaves_that_hangs_holds_up_no_load(engines, monkeypatch):
    base = engines.model("base", takes_lora=True, loras={"a": 60 * MB})
    other = engines.model("other", memory_bytes=50 * MB)
    engine = await engines.start(device="fake", memory_limit_bytes=100 * MB, timeouts=Timeouts(measure_s=0.05))
    await serve(engine, other, (base, "a"))
    release = threading.Event()
    monkeypatch.setattr(FakeProbe, "free_caches", lambda probe, device: release.wait(2 * BOUND_S))
    try:
        await serve(engine, other)
        assert adapters(engine, base) == ()
    finally:
        release.set()


async def test_an_adapter_of_a_pinned_model_goes_when_it_is_idle_and_the_model_stays(engines):
    base = engines.model("base", takes_lora=True, loras={"a": 60 * MB})
    engine = await engines.start(
        device="fake", idle_evict_s=0.05, pinned_models=(base,), timeouts=Timeouts(monitor_s=0.01)
    )
    await serve(engine, (base, "a"))
    await until(lambda: not adapters(engine, base))
    await until(lambda: MEMORY.used == 0)
    assert loaded(engine) == {base}


async def test_an_adapter_that_cannot_fit_unloads_nobody_and_is_refused_with_when_to_retry(engines):
    base = engines.model("base", memory_bytes=100 * MB, takes_lora=True, loras={"large": 190 * MB, "a": 10 * MB})
    other = engines.model("other", memory_bytes=100 * MB)
    engine = await engines.start(device="fake", memory_limit_bytes=280 * MB)
    await serve(engine, (base, "a"), other)
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(asked(base, "large")))
    assert (caught.value.code, caught.value.retry_after_s) == ("RESOURCE_EXHAUSTED", 5.0)
    assert "no room for the LoRA adapter large of test/base: it takes about 181 MiB" in caught.value.message
    assert (loaded(engine), adapters(engine, base)) == ({base, other}, ("a",))
    assert MEMORY.used == 210 * MB


async def test_a_refused_adapter_is_tried_again_after_the_time_that_clients_were_told(engines):
    base = engines.model("base", memory_bytes=100 * MB, takes_lora=True, loras={"a": 100 * MB})
    pinned = engines.model("pinned", memory_bytes=100 * MB)
    clock = Clock()
    engine = await engines.start(
        clock=clock, device="fake", memory_limit_bytes=300 * MB, load=[pinned], pinned_models=(pinned,)
    )
    elsewhere = MEMORY.allocate(50 * MB)
    with pytest.raises(InferenceError, match="no room"):
        await bounded(engine.infer(asked(base, "a")))
    elsewhere.free()
    with pytest.raises(InferenceError, match="no room"):
        await bounded(engine.infer(asked(base, "a")))
    clock.ahead_s = 5.0
    await serve(engine, (base, "a"))


async def test_an_adapter_in_use_is_kept_by_its_requests_and_room_waits_for_them(engines):
    hold = engines.hold()
    base = engines.model(
        "base", memory_bytes=50 * MB, takes_lora=True, loras={"a": 100 * MB, "b": 100 * MB}, run_hold=str(hold)
    )
    engine = await engines.start(device="fake", memory_limit_bytes=240 * MB, pinned_models=(base,))
    running = asyncio.create_task(engine.infer(asked(base, "a")))
    await until(lambda: RECORD.runs(base))
    waiting = asyncio.create_task(engine.infer(asked(base, "b")))
    await until(lambda: not adapters(engine, base))
    assert [event.texts for event in RECORD.events(base, "lora")] == [("a",)]
    assert MEMORY.used == 150 * MB
    hold.off()
    assert [reply.lora for reply in await bounded(asyncio.gather(running, waiting))] == ["a", "b"]
    assert MEMORY.peak <= 240 * MB
    assert MEMORY.used == 150 * MB


async def test_an_adapter_that_takes_more_than_its_file_says_has_a_model_unloaded_and_is_tried_once_more(engines):
    base = engines.model("base", memory_bytes=100 * MB, takes_lora=True, loras={"a": 100 * MB, "b": 990 * MB})
    other = engines.model("other", memory_bytes=900 * MB)
    for lora in "ab":
        with (engines.folder / "loras/base" / lora / "adapter_model.safetensors").open("r+b") as file:
            file.write((2).to_bytes(8, "little") + b"{}")
    engine = await engines.start(device="fake", load=[base, other], memory_pressure_threshold_percent=100)
    await serve(engine, (base, "a"))
    assert loaded(engine) == {base}
    assert sample(engine, "sie_model_evictions_total", model=other, reason="out_of_memory") == 1
    with pytest.raises(InferenceError, match="no room for the LoRA adapter b") as caught:
        await bounded(engine.infer(asked(base, "b")))
    assert (caught.value.code, caught.value.retry_after_s) == ("RESOURCE_EXHAUSTED", 5.0)
    assert loaded(engine) == {base}
    await serve(engine, base, (base, "a"))


async def test_a_model_that_must_go_tells_those_who_wait_for_its_adapters_to_come_back(engines):
    hold = engines.hold()
    base = engines.model("base", memory_bytes=200 * MB, takes_lora=True, loras={"a": 60 * MB})
    first = engines.model("first", memory_bytes=10 * MB, load_hold=str(hold))
    large = engines.model("large", memory_bytes=200 * MB)
    hold.off()
    engine = await engines.start(
        device="fake",
        memory_limit_bytes=300 * MB,
        load=[first],
        timeouts=Timeouts(drain_s=1000.0),  # the adapter waits for its turn, and the turn for the model
    )
    await bounded(engine.unload(first))  # what it takes is known now
    await bounded(engine.load(base))
    hold.on()
    loads = [asyncio.create_task(engine.load(first))]
    await until(lambda: loads_at_work(engine))
    loads.append(asyncio.create_task(engine.load(large)))
    await until(lambda: loads_waiting(engine) == 1)
    waiting = asyncio.create_task(engine.infer(asked(base, "a")))
    await until(lambda: loads_waiting(engine) == 2)
    hold.off()
    with pytest.raises(InferenceError) as caught:
        await bounded(waiting)
    assert (caught.value.code, caught.value.spec.retryable, caught.value.retry_after_s) == ("LORA_LOADING", True, 1.0)
    await bounded(asyncio.gather(*loads))
    assert loaded(engine) >= {large}
    await serve(engine, (base, "a"))


async def test_a_model_stays_until_the_load_of_an_adapter_at_work_in_it_ends(engines, caplog):
    hold = engines.hold()
    base = engines.model("base", memory_bytes=50 * MB, takes_lora=True, loras={"a": 10 * MB}, lora_hold=str(hold))
    engine = await engines.start(device="fake", load=[base])
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(asked(base, "a", load_wait_s=0.0)))
    assert caught.value.code == "LORA_LOADING"
    await until(lambda: loads_at_work(engine))
    await until(lambda: told(engine, base).leases)  # by the load alone
    waiting = asyncio.create_task(engine.infer(asked(base, "a", load_wait_s=600.0)))
    await asyncio.sleep(0)
    unloading = asyncio.create_task(engine.unload(base))
    with pytest.raises(InferenceError) as caught:
        await bounded(waiting)
    assert (caught.value.code, caught.value.spec.retryable) == ("LORA_LOADING", True)
    again = asyncio.create_task(engine.infer(asked(base, "a")))
    assert engine.model(base).state == "unloading"
    assert RECORD.events(base, "unload") == []
    assert loads_at_work(engine)
    hold.off()
    await bounded(unloading)
    assert (await bounded(again)).lora == "a"
    await until(lambda: MEMORY.used == 60 * MB)
    assert "failed" not in caplog.text


async def test_adapters_that_clients_think_up_leave_the_declared_their_place():
    async def load(name):
        if name != "declared":
            await asyncio.Event().wait()
        return loras.LoadedLora(Lora(name, None, 0), 0.0)

    made = loras.Loras("base", {"declared": LoraConfig("declared")}, 10, load)
    for number in range(loras.MOST_REMEMBERED + 2):
        said = "is being loaded" if number < loras.MOST_REMEMBERED else "other LoRA adapters"
        with pytest.raises(InferenceError, match=said):
            await made.acquire(f"org/{number}", LoadWait())
    lora, _ = await made.acquire("declared", LoadWait(30.0))
    assert lora.name == "declared"
    made.cancel_loads()


class Name(str):
    """The name of an adapter, which can be watched."""


async def test_failures_of_adapters_that_clients_think_up_are_forgotten_where_they_are_many(caplog):
    caplog.set_level("CRITICAL")  # what is kept of the log keeps names

    async def load(name):
        raise ModelLoadError("NOT_FOUND", "nobody has it")

    made, names = loras.Loras("base", {}, 10, load), []
    for number in range(2 * loras.MOST_REMEMBERED):
        name = Name(f"org/{number}")
        names.append(weakref.ref(name))
        with pytest.raises(InferenceError, match="cannot be used"):
            await made.acquire(name, LoadWait(BOUND_S))
        del name
    gc.collect()
    assert 0 < sum(name() is not None for name in names) <= loras.MOST_REMEMBERED


async def test_an_unloaded_model_gives_back_its_adapters(engines):
    base = engines.model("base", memory_bytes=50 * MB, takes_lora=True, loras={"a": 10 * MB})
    engine = await engines.start(device="fake")
    await serve(engine, (base, "a"))
    assert (MEMORY.used, engine.model(base).memory_bytes) == (60 * MB, 60 * MB)
    await bounded(engine.unload(base))
    assert (MEMORY.used, engine.model(base).memory_bytes) == (0, 50 * MB)


def cache(limit, *names, hold=None):
    """Make the adapters of one model, without the model; the load of `c` waits for `hold`."""

    async def load(name):
        if name == "c" and hold is not None:
            await hold.wait()
        return loras.LoadedLora(Lora(name, None, 0), 0.0)

    return loras.Loras("base", {name: LoraConfig(name) for name in names}, limit, load)


async def use(made, name, wait_s=BOUND_S):
    lora, lease = await made.acquire(name, LoadWait(wait_s))
    lease.release()
    return lora.name


async def test_an_adapter_that_arrives_while_as_many_as_stay_are_in_steady_use_is_served():
    hold = asyncio.Event()
    made = cache(2, *"abc", hold=hold)
    await use(made, "a")
    await use(made, "b")
    with pytest.raises(InferenceError, match="is being loaded"):
        await use(made, "c", 0.0)
    for name in "abab":
        assert await use(made, name) == name
    hold.set()
    await until(lambda: "c" in made.loaded)
    for name in "abab":  # the others go on, and load each other's again
        assert await use(made, name) == name
    assert await use(made, "c", 0.0) == "c"


async def test_adapters_that_are_asked_for_and_never_used_take_half_the_places_at_most():
    made = cache(4, *"abcdefgh")
    for name in "ab":
        await use(made, name)
    for name in "cdefgh":
        with pytest.raises(InferenceError, match="is being loaded"):
            await use(made, name, 0.0)
        await until(lambda name=name: name in made.loaded)
        await use(made, "a", 0.0)
    assert set(made.loaded) == {"a", "f", "g", "h"}


@pytest.mark.parametrize("device", ["cpu", "fake"])
async def test_requests_with_other_adapters_or_none_share_no_batch_though_their_family_gives_them_one_key(
    engines, device
):
    hold = engines.hold()
    gate = engines.model("gate", run_hold=str(hold))
    base = engines.model("base", takes_lora=True, loras={"legal": 4, "tax": 4})
    engine = await engines.start(device=device, load=[gate])
    wanted = {lora: vectors(await bounded(engine.infer(asked(base, lora))))[0] for lora in (None, "legal", "tax")}
    blocker = asyncio.create_task(engine.infer(request(gate, "gate")))
    await until(lambda: RECORD.runs(gate))
    RECORD.clear()
    order = [None, "legal", "tax", "legal", None]
    tasks = [asyncio.create_task(engine.infer(asked(base, lora))) for lora in order]
    await until(lambda: queued(engine) == len(order))
    hold.off()
    for lora, reply in zip(order, await bounded(asyncio.gather(*tasks)), strict=True):
        assert (vectors(reply)[0] == wanted[lora]).all()
    await bounded(blocker)
    assert sorted(run.size for run in RECORD.runs(base)) == [1, 2, 2]

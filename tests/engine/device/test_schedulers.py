"""Schedulers that break their contract: the requests in them are answered, and probes tell where nothing runs."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from sie_core.batching import FairScheduler
from sie_core.contracts import Batch, InferenceError, PluginError, QueuedUnit, Unit
from sie_core.engine.timeouts import Timeouts
from sie_core.plugins.model import UNKNOWN
from tests.engine.conftest import Engines, bounded, request, until


class Wrong(FairScheduler):
    """A scheduler with one fault while `fault` names it."""

    fault = ""
    gate = threading.Event()

    def add(self, request: Any, units: Any, now: float) -> None:
        if self.fault == "drops every unit":
            return
        if self.fault == "refuses whom it admitted" and request.admitted:
            raise InferenceError("QUEUE_FULL", "no more")
        super().add(request, units[1:] if self.fault == "drops a unit" else units, now)

    def next(self, now: float, *, ahead: bool = False, within: Batch | None = None) -> Any:
        if self.fault in ("never gives a batch", "raises in next"):
            return None if self.fault == "never gives a batch" else 1 / 0
        if self.fault == "hangs":
            self.gate.wait(30)
        if self.fault == "gives a list":
            return [1, 2]
        batch = super().next(now, ahead=ahead, within=within)
        if batch is None or not self.fault:
            return batch
        if self.fault == "gives a unit of nobody":
            stranger = QueuedUnit(Unit(0, 1, batch.units[0].unit.key, payload=None), batch.units[0].request)
            return dataclasses.replace(batch, units=(*batch.units, stranger))
        changes: dict[str, dict[str, Any]] = {
            "gives an empty batch": {"units": ()},
            "gives a batch of junk": {"units": (3,)},
            "gives a unit twice": {"units": 2 * batch.units},
            "gives another model": {"model": object()},
            "gives a list as model": {"model": []},
            "gives a number of units": {"units": len(batch.units)},
            "miscounts the cost": {"cost": batch.cost + 1},
            "predicts NaN": {"predicted_s": float("nan")},
        }
        return dataclasses.replace(batch, **changes.get(self.fault, {}))

    def late(self, now: float) -> Any:
        wrong = {"is late with None": None, "is late with lists": [[]]}
        return wrong[self.fault] if self.fault in wrong else super().late(now)

    def waiting(self, model: Any) -> Any:
        return None if self.fault == "counts no units" else super().waiting(model)

    def ran(self, batch: Batch, seconds: float | None, now: float) -> None:
        if self.fault == "raises in ran":
            raise ValueError("it cannot learn")
        super().ran(batch, seconds, now)


FAULTS = (
    *("drops every unit", "drops a unit", "never gives a batch", "raises in next", "gives a list"),
    *("gives an empty batch", "gives a batch of junk", "gives a unit of nobody", "gives a unit twice"),
    *("gives another model", "miscounts the cost", "predicts NaN", "is late with None"),
    *("gives a list as model", "gives a number of units", "is late with lists", "counts no units"),
)


async def engine_with(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, others: Mapping[str, Any] = MappingProxyType({}), **settings: Any
) -> Any:
    monkeypatch.setattr(Wrong, "fault", "")
    models = [engines.model("model"), engines.model("other")]
    return await engines.start(
        lambda plugins: dataclasses.replace(plugins, schedulers={"wrong": Wrong, **others}),
        load=models,
        scheduler="wrong",
        **settings,
    )


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_scheduler_that_breaks_its_contract_answers_its_requests_and_the_device_goes_on(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    engine = await engine_with(engines, monkeypatch)
    monkeypatch.setattr(Wrong, "fault", fault)

    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request("test/model", "a", "b")))

    assert caught.value.code == "QUEUE_UNAVAILABLE"
    assert "the scheduler failed; all that waited is lost" in caplog.text
    monkeypatch.setattr(Wrong, "fault", "")
    for model in ("test/model", "test/other"):
        assert len((await bounded(engine.infer(request(model, "text", "text")))).items) == 2
    assert engine.health().live_problem is None
    assert engine.health().ready_problem is None


@pytest.mark.parametrize("fault", ["raises in next", "counts no units"])
async def test_the_default_scheduler_takes_the_place_of_a_failed_one_and_readiness_is_lost(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    engine = await engine_with(engines, monkeypatch, {"fair": FairScheduler})
    assert engine.health().ready_problem is None
    monkeypatch.setattr(Wrong, "fault", fault)
    with pytest.raises(InferenceError):
        await bounded(engine.infer(request("test/model", "a")))
    for _ in range(3):
        assert len((await bounded(engine.infer(request("test/model", "text")))).items) == 1
    assert engine.health().live_problem is None
    assert "the scheduler 'wrong' failed: 'fair' serves until a restart" in engine.health().ready_problem


async def test_the_default_scheduler_serves_where_the_chosen_one_lacks_a_parameter(engines: Engines) -> None:
    class Older(FairScheduler):
        def next(self, now: float, *, ahead: bool = False) -> Batch | None:  # type: ignore[override]
            return super().next(now, ahead=ahead)

    engine = await engines.start(
        lambda plugins: dataclasses.replace(plugins, schedulers={"older": Older, "fair": FairScheduler}),
        load=[engines.model("model")],
        scheduler="older",
    )
    assert len((await bounded(engine.infer(request("test/model", "text")))).items) == 1
    assert "the scheduler 'older' cannot be made: 'fair' serves until" in engine.health().ready_problem
    assert "its `next` lacks the parameter 'within'" in str(engine.installed.faults.of(UNKNOWN)[0])


async def test_a_scheduler_that_cannot_learn_costs_nothing(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await engine_with(engines, monkeypatch)
    monkeypatch.setattr(Wrong, "fault", "raises in ran")
    assert len((await bounded(engine.infer(request("test/model", "text")))).items) == 1
    assert "it cannot learn" in caplog.text


async def test_priority_client_and_what_is_to_come_are_told_to_the_scheduler(engines: Engines) -> None:
    class Seen(FairScheduler):
        told: list[Any] = []  # noqa: RUF012

        def add(self, request: Any, units: Any, now: float) -> None:
            more = request.more_cost if len(units) < 4 else None
            self.told.append((request.client, request.priority, request.admitted, more))
            super().add(request, units, now)

    engine = await engines.start(
        lambda plugins: dataclasses.replace(plugins, schedulers={"seen": Seen}),
        load=[engines.model("model", max_batch_tokens=4)],
        scheduler="seen",
    )
    await bounded(engine.infer(request("test/model", "text", client="me", priority="bulk")))
    assert Seen.told == [("me", "bulk", False, 0)]
    Seen.told.clear()
    await bounded(engine.infer(request("test/model", *["text"] * 6)))
    assert [(admitted, more) for _, _, admitted, more in Seen.told] == [(False, 4), (True, 2), (True, 0)]


async def test_probes_tell_that_nothing_runs_because_the_scheduler_fails(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await engine_with(engines, monkeypatch)
    monkeypatch.setattr(Wrong, "fault", "gives a list")
    for _ in range(3):
        assert engine.health().ready_problem is None
        with pytest.raises(InferenceError):
            await bounded(engine.infer(request("test/model", "text")))

    assert "the scheduler failed 3 times in a row and nothing ran" in (engine.health().ready_problem or "")

    monkeypatch.setattr(Wrong, "fault", "")
    await bounded(engine.infer(request("test/model", "text")))
    assert engine.health().ready_problem is None


async def test_a_scheduler_that_cannot_be_made_again_still_answers(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await engine_with(engines, monkeypatch)
    monkeypatch.setattr(Wrong, "fault", "gives a list")
    monkeypatch.setattr(Wrong, "__init__", lambda self, limits: 1 / 0)

    for _ in range(2):
        with pytest.raises(InferenceError, match="lost"):
            await bounded(engine.infer(request("test/model", "text")))

    assert engine.health().live_problem is None


async def test_a_scheduler_that_hangs_turns_liveness_red(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await engine_with(engines, monkeypatch, timeouts=Timeouts(stall_s=0.05))
    monkeypatch.setattr(Wrong, "gate", threading.Event())
    monkeypatch.setattr(Wrong, "fault", "hangs")
    asked = asyncio.create_task(engine.infer(request("test/model", "text")))
    try:
        await until(lambda: "the scheduler has been at work" in (engine.health().live_problem or ""))
    finally:
        Wrong.gate.set()
    assert len((await bounded(asked)).items) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda limits: 1 / 0, "raised ZeroDivisionError"),
        (lambda limits: object(), "raised UnfitObject: it has no method `add_model`"),
    ],
    ids=["raises", "is none"],
)
def test_a_scheduler_that_cannot_be_made_stops_the_start_where_there_is_no_other(
    engines: Engines, change: Any, told: str
) -> None:
    with pytest.raises(PluginError, match=told):
        engines.make(lambda plugins: dataclasses.replace(plugins, schedulers={"bad": change}), scheduler="bad")

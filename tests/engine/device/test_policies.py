"""Batch policies that break their contract: the requests in them are answered, and probes tell where nothing runs."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any

import pytest

from sie_core.batching import BatchFormer
from sie_core.batching.checked import CheckedPolicy
from sie_core.contracts import Batch, BatchLimits, InferenceError, QueuedUnit, Unit
from sie_core.engine.timeouts import Timeouts
from tests.engine.conftest import Engines, bounded, request, until


class Wrong(BatchFormer):
    """A policy with one fault while `fault` names it."""

    fault = ""
    gate = threading.Event()

    def add(self, units: Any) -> None:
        if self.fault == "drops every unit":
            return
        super().add(units[1:] if self.fault == "drops a unit" else units)

    def take(self, now: float, device_busy: bool, most_s: float | None = None) -> Any:
        if self.fault == "never gives a batch":
            return None
        if self.fault == "hangs":
            self.gate.wait(30)
        if self.fault == "gives a list":
            return [1, 2]
        if self.fault == "gives an empty batch":
            return Batch((), "k", 0, None)
        if self.fault == "gives a batch of junk":
            return Batch((3,), "k", 1, None)  # type: ignore[arg-type]
        batch = super().take(now, device_busy)
        if batch is None or not self.fault:
            return batch
        if self.fault == "gives a unit of nobody":
            stranger = QueuedUnit(Unit(0, 1, batch.key, None), "nobody", now)
            return dataclasses.replace(batch, units=(*batch.units, stranger))
        if self.fault == "gives a unit twice":
            return dataclasses.replace(batch, units=2 * batch.units)
        if self.fault == "mixes keys":
            return dataclasses.replace(batch, key="another")
        if self.fault == "predicts NaN":
            return dataclasses.replace(batch, predicted_s=float("nan"))
        return batch

    def oldest(self) -> Any:
        return {"has no oldest": None, "has an odd oldest": "old"}.get(self.fault, super().oldest())

    def expire(self, now: float) -> Any:
        return None if self.fault == "expires None" else super().expire(now)


def test_requests_of_a_policy_that_knows_no_preemption_preempt_nothing():
    policy = CheckedPolicy(Wrong(BatchLimits(64, 4, None, 0.01)))
    policy.add([QueuedUnit(Unit(0, 1, "k", None), "request", 0.0)])
    assert policy.take(0.0, False, 0.1, preempting=True) is None
    assert policy.queued_units == 1


FAULTS = (
    *("drops every unit", "drops a unit", "never gives a batch", "gives a list", "gives an empty batch"),
    *("gives a batch of junk", "gives a unit of nobody", "gives a unit twice", "mixes keys", "predicts NaN"),
    *("has no oldest", "has an odd oldest", "expires None"),
)


async def engine_with(engines: Engines, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Any:
    monkeypatch.setattr(Wrong, "fault", "")
    models = [engines.model("model"), engines.model("other")]
    return await engines.start(
        lambda plugins: dataclasses.replace(plugins, batch_policies={"wrong": Wrong}),
        load=models,
        batch_policy="wrong",
        **settings,
    )


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_policy_that_breaks_its_contract_answers_its_requests_and_the_device_goes_on(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    engine = await engine_with(engines, monkeypatch)
    monkeypatch.setattr(Wrong, "fault", fault)

    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request("test/model", "a", "b")))

    assert caught.value.code == "QUEUE_UNAVAILABLE"
    assert "the batch policy of test/model failed; its queue is lost" in caplog.text
    monkeypatch.setattr(Wrong, "fault", "")
    for model in ("test/model", "test/other"):
        assert len((await bounded(engine.infer(request(model, "text", "text")))).items) == 2
    assert engine.health().live_problem is None
    assert engine.health().ready_problem is None


async def test_a_priority_is_the_weight_of_what_is_queued(engines: Engines) -> None:
    class Seen(BatchFormer):
        weights: list[float] = []  # noqa: RUF012

        def add(self, units: Any) -> None:
            self.weights.extend(unit.weight for unit in units)
            super().add(units)

    engine = await engines.start(
        lambda plugins: dataclasses.replace(plugins, batch_policies={"seen": Seen}),
        load=[engines.model("model")],
        batch_policy="seen",
    )
    for priority in ("interactive", None, "bulk"):
        await bounded(engine.infer(request("test/model", "text", priority=priority)))
    assert Seen.weights == [4.0, 1.0, 0.25]


async def test_probes_tell_that_nothing_runs_because_policies_fail(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await engine_with(engines, monkeypatch)
    monkeypatch.setattr(Wrong, "fault", "gives a list")
    for _ in range(3):
        assert engine.health().ready_problem is None
        with pytest.raises(InferenceError):
            await bounded(engine.infer(request("test/model", "text")))

    assert "batch policies failed 3 times in a row and nothing ran" in (engine.health().ready_problem or "")

    monkeypatch.setattr(Wrong, "fault", "")
    await bounded(engine.infer(request("test/model", "text")))
    assert engine.health().ready_problem is None


async def test_a_policy_that_cannot_be_made_again_still_answers(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await engine_with(engines, monkeypatch)
    monkeypatch.setattr(Wrong, "fault", "gives a list")
    monkeypatch.setattr(Wrong, "__init__", lambda self, limits: 1 / 0)

    for _ in range(2):
        with pytest.raises(InferenceError, match="lost"):
            await bounded(engine.infer(request("test/model", "text")))

    assert engine.health().live_problem is None


async def test_a_policy_that_hangs_turns_liveness_red(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await engine_with(engines, monkeypatch, timeouts=Timeouts(stall_s=0.05))
    monkeypatch.setattr(Wrong, "gate", threading.Event())
    monkeypatch.setattr(Wrong, "fault", "hangs")
    asked = asyncio.create_task(engine.infer(request("test/model", "text")))
    try:
        await until(lambda: "a batch policy has been at work" in (engine.health().live_problem or ""))
    finally:
        Wrong.gate.set()
    assert len((await bounded(asked)).items) == 1

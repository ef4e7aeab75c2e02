"""Memory managers that raise or answer with junk: nothing is unloaded for it, and the plugin is named once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sie_core.contracts import DeviceMemory, HeldModel, PluginError, Room
from sie_core.memory.checked import CheckedManager
from tests.engine.conftest import Engines, bounded, request

MEMORY = DeviceMemory(900, 1000)
MODELS = [HeldModel("a", 10, 0.0, load_s=1.0, last_used=0.0, uses=0, served=True, pinned=False)]


class Answers:
    """A manager that answers every question with one thing, or raises it."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def _ask(self, *_: Any) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    make_room = relieve = out_of_memory = _ask


@pytest.mark.parametrize(
    "answer", [KeyError("x"), 3, object(), ["b"], "nobody", Room(evict="b"), Room(wait_s=float("nan"))]
)
def test_an_answer_that_is_none_is_done_without_and_told(answer: Any) -> None:
    told: list[str] = []
    manager = CheckedManager(Answers(answer), lambda problem, error: told.append(problem))

    assert manager.make_room(5, MEMORY, MODELS, 1.0) == Room()
    assert tuple(manager.relieve(MEMORY, MODELS, 1.0)) == ()
    assert manager.out_of_memory(MEMORY, MODELS, 1.0) is None
    assert len(told) == 3


def test_what_it_may_answer_passes() -> None:
    def unused(problem: str, error: Exception | None) -> None:
        raise AssertionError(problem)

    assert CheckedManager(Answers(Room(evict="a")), unused).make_room(5, MEMORY, MODELS, 1.0) == Room(evict="a")
    assert CheckedManager(Answers(Room(wait_s=0.5)), unused).make_room(5, MEMORY, MODELS, 1.0) == Room(wait_s=0.5)
    assert list(CheckedManager(Answers(("a",)), unused).relieve(MEMORY, MODELS, 1.0)) == ["a"]
    assert CheckedManager(Answers("a"), unused).out_of_memory(MEMORY, MODELS, 1.0) == "a"


async def test_models_load_though_the_manager_raises_and_its_plugin_is_named(engines: Engines, caplog: Any) -> None:
    model = engines.model("model")
    engine = await engines.start(
        lambda plugins: dataclasses.replace(plugins, memory_managers={"lru": lambda limits: Answers(KeyError("x"))}),
        load=[model],
    )

    assert len((await bounded(engine.infer(request(model, "text")))).items) == 1
    report = next(each for each in engine.plugins() if each["state"] == "failing")
    assert report["name"] == "sie_core.defaults.memory_manager"
    assert "the memory manager 'lru' raised or answered what it must not (KeyError): 'x'" in report["cause"]
    assert caplog.text.count("KeyError: 'x'") >= 1


async def test_a_manager_that_cannot_be_made_stops_the_start_by_name(engines: Engines) -> None:
    def broken(limits: Any) -> Any:
        raise RuntimeError("no limits for anybody")

    with pytest.raises(
        PluginError, match=r"SIE_MEMORY_MANAGER='lru': the memory manager 'lru' of the plugin .*no limits"
    ):
        engines.make(lambda plugins: dataclasses.replace(plugins, memory_managers={"lru": broken}))

"""Placement with real processes: every model is loaded once in the cluster, whoever joins, ends or is killed."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex

import pytest

from tests.cluster.placement.fleet import Fleet, fleet
from tests.soak.faults.cluster import LATENCY_MS, until

MODELS = [f"test/{number}" for number in range(8)]
COLD, TUNED = "test/cold", "test/tuned"
LORAS = [f"lora-{token_hex(4)}" for _ in range(24)]
"""Other names in each run: none may be too many for a worker."""
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as running:
        for model in MODELS:
            # A further copy is loaded where work waits for longer than a load takes.
            running.write(model, latency_ms=LATENCY_MS, load_s=0.5)
        running.write(COLD, load_s=1.0, memory_bytes=1)
        running.write(TUNED, LORAS, takes_lora="true", memory_bytes=1)
        running.add("w1", "w2")
        yield running


def test_each_of_eight_models_is_loaded_once_whoever_joins_and_four_once_more_for_one_that_is_killed(
    running: Fleet,
) -> None:
    def ran(name: str) -> bool:
        before = len(running.events(name))
        until(lambda: len(running.events(name)) >= before + 8, f"runs of {name}")
        return True

    with running.traffic(MODELS) as failed:
        until(lambda: set(running.loads()) == set(MODELS), "all of them loaded")
        assert [len(running.loads(name)) for name in ("w1", "w2")] == [4, 4]
        running.add("w3")
        assert ran("w1")
        assert ran("w2")
        assert running.loads() == Counter(MODELS)
        had = set(running.loads("w1"))
        running.end("w1", signal.SIGKILL)
        until(lambda: running.loads().total() == 12, "four of them loaded again")
        assert ran("w3")
    assert running.loads() == Counter(MODELS) + Counter(had)
    assert set(running.loads("w3")) == had
    assert failed == []


def test_a_burst_of_a_hundred_for_a_cold_model_is_one_load(running: Fleet) -> None:
    with ThreadPoolExecutor(100) as pool:
        assert set(pool.map(lambda number: running.ask(COLD, f"text {number}"), range(100))) == {200}
    assert running.loads()[COLD] == 1


def test_twenty_four_loras_on_one_model_over_three_workers_of_ten_are_each_loaded_once(running: Fleet) -> None:
    running.add(*{"w1", "w2", "w3"}.difference(running.workers))
    for _ in range(2):
        assert [running.ask(TUNED, lora=name) for name in LORAS] == [200] * len(LORAS)
    assert running.loads(kind="lora") == Counter(LORAS)
    assert running.loads()[TUNED] <= 3


def test_workers_that_leave_and_come_under_load_cost_no_request_and_few_loads_but_those_of_what_they_had(
    running: Fleet,
) -> None:
    models, needed = MODELS[:4], 0
    with running.traffic(models) as failed:
        until(lambda: all(running.loads()[model] for model in models), "all of them loaded")
        before = running.loads()
        for number, name in enumerate(sorted(running.workers)):
            had = {model for model in models if running.has(name, model)}
            needed += len(had)
            running.add(f"new{number}")
            running.end(name, signal.SIGTERM)
            until(lambda had=had: all(running.anywhere(model) for model in had), "what it had loaded elsewhere")
        # Two sidecars that heard different heartbeats may both load a model.
        assert sum((running.loads() - before)[model] for model in models) <= 2 * needed
    assert failed == []


def test_what_a_pool_pins_stays_loaded_while_eight_models_share_the_memory_of_four(running: Fleet) -> None:
    kept, others = MODELS[0], MODELS[1:]
    made = running.client.post(f"{running.url}/v1/pools", json={"name": "kept", "pinned_models": [kept]}).json()
    (leased,) = (each["name"] for each in made["status"]["assigned_workers"])
    until(lambda: running.has(leased, kept), "the pinned model")
    for number in range(2):
        assert [running.ask(model, f"text {number}", pool="kept") for model in others] == [200] * 7
    unloaded = [event.model for event in running.events(leased) if event.kind == "unload"]
    assert len(unloaded) >= 7
    assert running.has(leased, kept)
    assert running.client.delete(f"{running.url}/v1/pools/kept").status_code == 200
    unpinned = [event for event in running.events(leased) if event.kind == "unload" and event.model == kept]
    assert unpinned == []


def test_a_worker_with_more_models_than_it_has_room_for_gives_some_to_one_that_joins(running: Fleet) -> None:
    def quiet() -> bool:
        """Whether nothing is loaded while each model runs some times."""
        loads, events = running.loads().total(), len(running.events())
        until(lambda: len(running.events()) >= events + 60, "runs")
        return running.loads().total() == loads

    first, *others = sorted(running.workers)
    for name in others:
        running.end(name, signal.SIGTERM)
    with running.traffic(MODELS) as failed:
        until(lambda: sum(event.kind == "unload" for event in running.events(first)) > 8, "loads in turns")
        running.add("relief")
        until(quiet, "every model loaded somewhere")
    assert failed == []

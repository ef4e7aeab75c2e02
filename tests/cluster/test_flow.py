"""What a worker is sent and when: ahead by cost, keys in turns, and nothing held up by what waits for a load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from sie_cluster.messages.work import WorkHead
from sie_cluster.sidecar.adapter.flow import TOGETHER, Ahead, Turns
from sie_cluster.sidecar.held import Slice

from .in_process import BOUND_S, Cluster, running

LOADED, LOADING = "test/loaded", "test/loading"
CREDIT = 4


@dataclass
class Two:
    """A cluster with a model whose runs wait while `run` exists, and one whose loads wait while `load` does."""

    cluster: Cluster
    run: Path
    load: Path

    async def ask(self, model: str, text: str, **headers: str) -> httpx.Response:
        path, body = f"/v1/encode/{model}", {"items": [{"text": text}]}
        async with asyncio.timeout(BOUND_S):
            return await self.cluster.client.post(path, json=body, headers=headers)

    def ask_and_wait(self, model: str, text: str) -> asyncio.Task[httpx.Response]:
        return asyncio.create_task(self.ask(model, text, Prefer="wait=30"))


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    run, load, configs = tmp_path / "run", tmp_path / "load", tmp_path / "configs"
    configs.mkdir()
    for model, option in ((LOADED, f"run_hold: {run}"), (LOADING, f"load_hold: {load}")):
        (configs / f"{model[5:]}.yaml").write_text(
            f"sie_id: {model}\npackage_backed: true\ntasks: {{encode: {{dense: {{dim: 8}}}}}}\nprofiles:\n  default:\n"
            f"    adapter_path: fake\n    max_batch_tokens: 8\n    adapter_options: {{loadtime: {{{option}}}}}\n"
        )
    # Credit for four slices of a model; a batch is about 32 bytes of items.
    chosen = {"max_concurrent_batches": 1, "batcher_max_batch_requests": CREDIT, "max_batch_cost": 8}
    load.touch()
    async with running(
        tmp_path, models_dir=configs, preload_models=(LOADED,), native_load_wait_s=0.0, **chosen
    ) as cluster:
        yield Two(cluster, run, load)
        run.unlink(missing_ok=True)
        load.unlink(missing_ok=True)


async def test_slices_that_wait_for_a_load_hold_up_nobody(two: Two):
    """More of them than there is credit for: others of the model are told to come back, other models answer."""
    waiting = [two.ask_and_wait(LOADING, f"text {number}") for number in range(2 * CREDIT)]
    await two.cluster.until(lambda: two.cluster.intake.in_flight == len(waiting))

    told = await two.ask(LOADING, "not waiting")
    assert (told.status_code, told.json()["error"]["code"]) == (503, "MODEL_LOADING")
    assert (await two.ask(LOADED, "another")).status_code == 200

    two.load.unlink()
    assert {reply.status_code for reply in await asyncio.gather(*waiting)} == {200}


async def test_a_wait_for_a_load_that_is_called_off_holds_nothing(two: Two):
    waiting = [two.ask_and_wait(LOADING, f"text {number}") for number in range(2 * CREDIT)]
    await two.cluster.until(lambda: two.cluster.intake.in_flight == len(waiting))
    for each in waiting:
        each.cancel()
    sidecar = two.cluster.sidecar
    await two.cluster.until(lambda: sidecar.in_flight == 0 and two.cluster.intake.in_flight == 0)
    two.load.unlink()
    assert (await two.ask_and_wait(LOADING, "again")).status_code == 200


async def test_the_worker_is_sent_no_more_than_the_batches_it_may_have_ahead(two: Two):
    two.run.touch()
    asked = [two.ask_and_wait(LOADED, f"text {number} of forty bytes and some more") for number in range(3 * CREDIT)]
    sidecar, intake = two.cluster.sidecar, two.cluster.intake
    await two.cluster.until(lambda: sidecar.in_flight == CREDIT)
    # Each is a batch: one runs, and two are ahead of it.
    await two.cluster.until(lambda: intake.in_flight == 3 and sidecar.slices.dispatch.batches_ahead == 2.0)
    assert sidecar.in_flight == CREDIT
    two.run.unlink()
    assert {reply.status_code for reply in await asyncio.gather(*asked)} == {200}


async def test_lora_adapters_load_and_are_named_behind_a_queue(tmp_path: Path):
    path, body = (
        "/v1/encode/sie-fake/embedder:tuned",
        {"items": [{"text": "a"}], "params": {"options": {"lora": "legal"}}},
    )
    async with running(tmp_path, preload_models=("sie-fake/embedder:tuned",), native_load_wait_s=0.0) as cluster:
        told = await cluster.client.post(path, json=body)
        assert (told.status_code, told.json()["error"]["code"]) == (503, "LORA_LOADING")
        reply = await cluster.client.post(path, json=body, headers={"Prefer": "wait=30"})
        assert reply.status_code == 200, reply.text
        assert reply.headers["X-SIE-LoRA"] == reply.json()["lora"] == "legal"


def held(number: int, key: bytes, *, alone: bool = False) -> Slice:
    head = WorkHead("r", 0, 1, 1, "encode", "m", key, 0, 1, 10, f"_INBOX.a.{number}", alone=alone)
    return Slice(number, head, _Delivery(), None)  # type: ignore[arg-type]


class _Delivery:
    attempt = 1


def test_slices_of_one_key_leave_together_and_keys_take_turns():
    turns = Turns()
    many = [held(number, b"many") for number in range(TOGETHER + 3)]
    few = [held(100 + number, b"few") for number in range(2)]
    alone = held(200, b"many", alone=True)
    for each in (*many, *few, alone):
        turns.add(each)
    turns.remove(many[1])
    turns.remove(many[1])
    del many[1]
    assert turns.take(1000) == many[:TOGETHER]
    assert turns.take(1000) == few
    assert turns.next_is_alone
    assert turns.take(1000) == [alone]
    assert turns.take(1000) == many[TOGETHER:]
    assert not turns


def test_slices_of_one_key_leave_together_up_to_a_batch():
    turns = Turns()
    large = [held(number, b"large") for number in range(3)]
    for each in large:
        turns.add(each)
    assert turns.take(20) == large[:2]
    assert turns.take(5) == large[2:]


def test_what_is_ahead_is_what_was_reported_and_what_was_sent_since():
    ahead = Ahead(100)
    for _ in range(3):
        ahead.sent(50)
    assert ahead.batches == 1.5
    ahead.reported(2, 0.25)
    assert ahead.batches == 0.75
    ahead.reported(3, 0.0)
    assert ahead.batches == 0.0
    ahead.sent(50)
    ahead.clear()
    assert ahead.batches == 0.0

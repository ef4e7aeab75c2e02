"""What a sidecar knows of pools."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic import SecretStr
from sie_cluster.fleet.pools import assignments
from sie_cluster.fleet.pools.assignments import Assignments
from sie_cluster.fleet.pools.changes import create, settle
from sie_cluster.fleet.pools.document import KEY, LaterVersion, decode_pools, encode_pools, lease_key
from sie_cluster.fleet.pools.pools import Pools
from sie_cluster.queue.subjects import POOLS
from sie_cluster.settings import ClusterSettings
from sie_fake.broker.queue import in_process_transports

from sie_core.contracts import PoolSpec, PoolWorker, QueueError
from tests.sdk.scripted import scripted_server

WAIT_S = 30.0
WORKER = PoolWorker("w", "l4", "default", queue_pool="_default", gpus=2, gpu="NVIDIA L4", url="http://w:8080")


def pools() -> Pools:
    made = create(Pools(), "p", PoolSpec({"l4": 2}, {"l4": 4}, pinned_models=("org/m",)), 5.5)
    return settle(made, {"p"}, {"w": WORKER})


def test_pools_are_the_same_once_written_and_read():
    assert decode_pools(encode_pools(pools())) == pools()
    assert decode_pools(encode_pools(Pools())) == Pools()


@pytest.mark.parametrize("value", [b"", b"[]", b"7", b'{"version": 1, "pools": 3}', b"\xff"])
def test_what_is_no_document_is_refused(value):
    with pytest.raises(ValueError, match="cannot be read"):
        decode_pools(value)


def test_a_document_of_another_version_is_told_by_that():
    with pytest.raises(LaterVersion, match="version 2"):
        decode_pools(b'{"version": 2}')


async def test_a_sidecar_is_told_its_pool_and_changes_of_its_own_alone(caplog):
    (factory,), changes = in_process_transports(), asyncio.Queue()
    transport = factory.create("memory://assignments", {})
    await transport.open()
    seen = Assignments(transport, ClusterSettings(), "w", lambda: changes.put_nowait((seen.pool, seen.pins)))
    store = await transport.key_value(POOLS)
    await seen.begin()
    assert (seen.pool, seen.pins) == ("default", ())
    await store.put(KEY, encode_pools(pools()))
    await store.put(lease_key("p"), b"1")
    async with asyncio.timeout(WAIT_S):
        assert await changes.get() == ("p", ("org/m",))
        await store.put(KEY, encode_pools(create(pools(), "q", PoolSpec(), 7)))
        for _ in range(2):
            await store.put(KEY, b"not a document")
        while "cannot be read" not in caplog.text:  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(0.01)
        assert seen.pool == "p", "what was told before holds"
        await store.put(KEY, encode_pools(Pools()))
        assert await changes.get() == ("default", ())
    assert changes.empty()
    assert caplog.text.count("resource pools cannot be read") == 1
    await transport.close()


async def test_a_sidecar_that_begins_before_there_is_a_store_finds_it(monkeypatch):
    monkeypatch.setattr(assignments, "FIRST_S", 0.05)
    (factory,), changed = in_process_transports(), asyncio.Event()
    transport = factory.create("memory://no-store-yet", {})
    await transport.open()
    seen = Assignments(transport, ClusterSettings(), "w", changed.set)
    await seen.begin()
    running = asyncio.create_task(seen.run())
    store = await transport.key_value(POOLS)
    await store.put(KEY, encode_pools(pools()))
    async with asyncio.timeout(WAIT_S):
        await changed.wait()
        await running
    assert seen.pool == "p"
    await transport.close()


async def test_pools_that_cannot_be_read_are_told_once(caplog):
    (factory,) = in_process_transports()
    seen = Assignments(factory.create("memory://closed", {}), ClusterSettings(), "w", lambda: None)
    for _ in range(2):
        await seen.begin()
    assert caplog.text.count("resource pools cannot be read") == 1


async def test_a_sidecar_that_may_not_read_the_store_asks_a_gateway():
    class Refusing:
        """A broker whose user may not read the store."""

        async def key_value(self, name: str, *, make: bool) -> None:
            raise QueueError("DENIED", f"{name} is not for this user")

    listed = {
        "name": "p",
        "spec": {"pinned_models": ["org/m"]},
        "status": {
            "state": "active",
            "assigned_workers": [{"name": "w", "gpu": "l4", "bundle": "default"}],
            "created_at": 1.0,
            "last_renewed": 1.0,
        },
    }
    with scripted_server() as gateway:
        settings = ClusterSettings(gateway_url=gateway.url, auth_mode="token", auth_token=SecretStr("client"))
        seen = Assignments(Refusing(), settings, "w", lambda: None)
        gateway.script = [(200, {}, json.dumps({"pools": [listed]}).encode()), (401, {}, b""), (200, {}, b"[]")]
        await seen.begin()
        assert (seen.pool, seen.pins) == ("p", ("org/m",))
        for _ in range(2):
            await seen.begin()
            assert seen.pool == "p", "what was read before holds"
        assert {path for _, path, _, _ in gateway.requests} == {"/v1/pools"}
        assert gateway.requests[0][2]["authorization"] == "Bearer client"


async def test_a_worker_without_admission_belongs_to_no_pool():
    seen = Assignments(None, ClusterSettings(pool_admission_enabled=False), "w", lambda: None)
    await seen.begin()
    await seen.run()
    assert seen.pool == "default"

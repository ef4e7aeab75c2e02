"""What a sidecar knows of pools."""

from __future__ import annotations

import json

import pytest
from pydantic import SecretStr
from sie_cluster.fleet.pools.assignments import PoolsAway, ReadAssignments
from sie_cluster.fleet.pools.changes import assign, create
from sie_cluster.fleet.pools.document import KEY, LaterVersion, decode_pools, encode_pools
from sie_cluster.fleet.pools.pools import Pools
from sie_cluster.fleet.pools.reading import StoredPools, pools_reader
from sie_cluster.in_process_queue import in_process_transports
from sie_cluster.queue.subjects import POOLS
from sie_cluster.settings import ClusterSettings

from sie_core.contracts import PoolSpec, PoolWorker, QueueError
from tests.sdk.scripted import scripted_server

WORKER = PoolWorker("w", "l4", "default", "_default", 2, "NVIDIA L4", "http://w:8080")


def pools() -> Pools:
    made = create(Pools(), "p", PoolSpec({"l4": 2}, {"l4": 4}, pinned_models=("org/m",)), 5.5, 1200)
    return assign(made, {"w": WORKER}, 6)


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


async def test_a_sidecar_reads_its_pool_from_the_store_and_hears_of_changes():
    (factory,), changes = in_process_transports(), []
    transport = factory.create("memory://assignments", {})
    await transport.open()
    seen = ReadAssignments(StoredPools(transport).read, lambda: changes.append(seen.pool_of("w")))
    await seen.look()
    assert (seen.pool_of("w"), changes) == ("default", [])
    store = await transport.key_value(POOLS)
    await store.put(KEY, encode_pools(pools()))
    await seen.look()
    await seen.look()
    assert (seen.pool_of("w"), seen.pins_of("w"), changes) == ("p", ("org/m",), ["p"])
    assert (seen.pool_of("other"), seen.pins_of("other")) == ("default", ())
    await store.put(KEY, b"not a document")
    await seen.look()
    assert seen.pool_of("w") == "p", "what was read before holds"
    await transport.close()


async def test_pools_that_cannot_be_read_are_told_once(caplog):
    async def away() -> Pools:
        raise PoolsAway("the broker is away")

    seen = ReadAssignments(away)
    await seen.look()
    await seen.look()
    assert caplog.text.count("the broker is away") == 1


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
        seen = ReadAssignments(pools_reader(Refusing(), settings))
        gateway.script = [(200, {}, json.dumps({"pools": [listed]}).encode()), (401, {}, b""), (200, {}, b"[]")]
        await seen.look()
        assert (seen.pool_of("w"), seen.pins_of("w")) == ("p", ("org/m",))
        for _ in range(2):
            await seen.look()
            assert seen.pool_of("w") == "p", "what was read before holds"
        assert {path for _, path, _, _ in gateway.requests} == {"/v1/pools"}
        assert gateway.requests[0][2]["authorization"] == "Bearer client"


async def test_a_worker_without_admission_belongs_to_no_pool():
    seen = ReadAssignments(pools_reader(None, ClusterSettings(pool_admission_enabled=False)))
    await seen.look()
    assert seen.pool_of("w") == "default"

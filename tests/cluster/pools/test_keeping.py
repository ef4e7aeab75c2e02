"""Gateways change the pools of one store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import orjson
import pytest
from sie_cluster.fleet.pools.changes import delete
from sie_cluster.fleet.pools.document import KEY, decode_pools
from sie_cluster.fleet.pools.pools import Pools
from sie_cluster.gateway.pools.keeping import ENDED_S, LOST_S, PoolKeeper
from sie_cluster.queue.subjects import POOLS
from sie_fake.broker.queue import in_process_transports

from sie_core.contracts import InferenceError, PoolSpec
from tests.cluster.pools.fleet import fleet

WAIT_S = 30.0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


async def test_two_gateways_that_create_and_delete_at_once_lose_no_worker_and_give_none_twice():
    async with fleet("contended", 2) as cluster:
        for number in range(6):
            await cluster.beat(f"w{number}")
        chance, wrong = random.Random(7), []

        async def watch() -> None:
            store, seen = await cluster.transports[0].key_value(POOLS), 0
            while True:
                entry = await store.get(KEY)
                if entry is not None and entry.revision > seen:
                    seen, pools = entry.revision, decode_pools(entry.value)
                    wrong.extend(each for each in pools.workers.values() if each.pool not in pools.pools)
                await asyncio.sleep(0)

        async def client(keeper, name: str) -> None:
            for _ in range(40):
                with suppress(InferenceError):
                    if chance.random() < 0.6:
                        await keeper.create(name, PoolSpec({"l4": chance.randint(1, 4)}))
                    else:
                        await keeper.change(lambda pools: delete(pools, name))

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(client(keeper, name) for keeper in cluster.keepers for name in ("p", "q", "r")))
        for name in ("p", "q", "r"):
            with suppress(InferenceError):
                await cluster.keepers[0].change(lambda pools, name=name: delete(pools, name))
        watching.cancel()
        ended = await cluster.keepers[1].change()
        assert (wrong, ended) == ([], Pools())
        assert cluster.events["created"] == cluster.events["deleted"] > 0
        assert cluster.events["assigned"] == cluster.events["released"] > 0


async def test_every_change_counts_although_writers_are_many():
    async with fleet("counting", 4) as cluster:
        names = [f"p{number}" for number in range(40)]
        await asyncio.gather(*(cluster.keepers[place % 4].create(name, PoolSpec()) for place, name in enumerate(names)))
        pools = await cluster.keepers[0].change()
        assert sorted(pools.pools) == sorted(names)
        assert cluster.events == {"created": 40}


async def test_a_lease_ends_by_the_broker_s_clock_and_whoever_is_there_frees_its_workers():
    async with fleet("ending", 2, lease_s=2) as cluster:
        one, other = cluster.keepers
        await cluster.beat("w")
        await one.create("p", PoolSpec({"l4": 1}))
        assert one.leased_gpus() == {("l4", "default"): 1}
        for _ in range(3):
            await asyncio.sleep(0.75)
            await one.renew("p")
        assert (await other.change()).pool_of("w") == "p"
        await until(lambda: other.state(other.pools.pools["p"]) == "expired")
        assert (await other.change()).pool_of("w") == "default"
        for keeper in cluster.keepers:
            with pytest.raises(InferenceError, match="its lease has ended"):
                await keeper.renew("p")
        assert (await one.change()).pools.keys() == {"p"}
        cluster.now += ENDED_S
        assert (await one.change()).pools == {}
        assert cluster.events == {"created": 1, "assigned": 1, "renewed": 3, "released": 1, "expired": 1}


async def test_a_gateway_whose_clock_is_twenty_one_minutes_ahead_leaves_leases_alone():
    """And one whose clock is as far behind gives none that lasts longer."""
    async with fleet("skewed", 3, lease_s=1200, ahead_s=21 * 60) as cluster:
        await cluster.beat("w0")
        await cluster.beat("w1")
        for keeper, name in zip(cluster.keepers, "pqr", strict=True):
            await keeper.create(name, PoolSpec({"l4": 1}, minimum_worker_count=0))
        for keeper in cluster.keepers:
            settled = await keeper.change()
            assert set(settled.pools) == {"p", "q", "r"}
            assert {settled.pool_of("w0"), settled.pool_of("w1")} == {"p", "q"}, "the oldest are those made first"
            assert {keeper.state(pool) for pool in settled.pools.values()} == {"pending"}
            await keeper.renew("p")
        await cluster.keepers[2].create("p", PoolSpec({"l4": 1}))
        assert "expired" not in cluster.events


async def test_a_pool_that_is_made_again_after_its_lease_ended_is_another_one():
    async with fleet("again", lease_s=2) as cluster:
        (keeper,) = cluster.keepers
        first = (await keeper.create("p", PoolSpec())).pools["p"]
        await keeper.create("q", PoolSpec())
        await keeper.create("p", PoolSpec())
        assert keeper.pools.pools["p"] == first
        await until(lambda: keeper.state(first) == "expired")
        again = await keeper.create("p", PoolSpec())
        assert list(again.pools) == ["q", "p"]
        assert again.pools["p"].created_at > first.created_at
        assert cluster.events == {"created": 3, "renewed": 1, "expired": 1}


async def test_a_worker_that_is_not_heard_of_keeps_its_place_for_a_while_and_counts_for_nothing():
    async with fleet("lost") as cluster:
        (keeper,) = cluster.keepers
        await cluster.beat("w0")
        pools = await keeper.create("p", PoolSpec({"l4": 1}))
        await cluster.beat("w0", resource_pool="p")
        assert keeper.state(pools.pools["p"]) == "active"
        await cluster.beat("w0", resource_pool="p", up=False)
        await cluster.beat("w1")
        assert (await keeper.change()).workers.keys() == {"w0"}
        assert keeper.state(pools.pools["p"]) == "pending"
        cluster.now += LOST_S - 1
        assert (await keeper.change()).workers.keys() == {"w0"}
        cluster.now += 1
        assert (await keeper.change()).workers.keys() == {"w1"}


async def test_a_pool_that_waits_is_told_to_a_scaler_although_nobody_asks_it_for_anything():
    async with fleet("waiting") as cluster:
        (keeper,) = cluster.keepers
        await keeper.create("p", PoolSpec({"l4": 2, "a100": 1}, bundle="gliner"))
        await keeper.create("q", PoolSpec(minimum_worker_count=2))
        assert keeper.leased_gpus() == {("l4", "gliner"): 2, ("a100", "gliner"): 1, ("any", "default"): 2}
        await keeper.change(lambda pools: delete(pools, "p"))
        await cluster.beat("w")
        await keeper.change()
        assert keeper.leased_gpus() == {("l4", "default"): 1, ("any", "default"): 1}
        await keeper.create("q", PoolSpec({"l4": 3}))
        assert keeper.leased_gpus() == {("l4", "default"): 3}


async def test_a_pool_is_active_once_its_worker_says_that_it_serves_it_alone():
    async with fleet("active") as cluster:
        (keeper,) = cluster.keepers
        await cluster.beat("w")
        pools = await keeper.create("p", PoolSpec({"l4": 1}))
        assert (pools.pool_of("w"), keeper.state(pools.pools["p"])) == ("p", "pending")
        await cluster.beat("w", resource_pool="p")
        assert keeper.state(pools.pools["p"]) == "active"


async def test_a_worker_that_drains_is_given_to_nobody():
    async with fleet("draining") as cluster:
        await cluster.beat("w", up=False)
        pools = await cluster.keepers[0].create("p", PoolSpec({"l4": 1}))
        assert pools.workers == {}


async def test_a_request_finds_a_pool_that_another_gateway_made_and_no_other():
    async with fleet("leased", 2) as cluster:
        one, other = cluster.keepers
        await one.create("p", PoolSpec(bundle="default"))
        assert (await other.leased("p")).spec.bundle == "default"
        with pytest.raises(InferenceError, match="no resource pool 'q'") as refused:
            await other.leased("q")
        assert refused.value.code == "POOL_NOT_FOUND"


async def test_a_request_finds_a_pool_that_another_gateway_made_just_after_its_own_last_looked():
    async with fleet("just-made", 2) as cluster:
        one, other = cluster.keepers
        await other.change()
        await one.create("p", PoolSpec())
        assert (await other.leased("p")).name == "p"


async def test_ten_thousand_invented_pools_cost_the_broker_nothing_and_are_kept_nowhere(monkeypatch):
    async with fleet("invented") as cluster:
        (keeper,) = cluster.keepers
        await keeper.read()
        monkeypatch.delattr(type(keeper._stored._store), "get")
        names = [f"invented-{number}" for number in range(10_000)]
        refused = await asyncio.gather(*map(keeper.leased, names), return_exceptions=True)
        assert {isinstance(each, InferenceError) and each.code for each in refused} == {"POOL_NOT_FOUND"}
        assert keeper.pools == Pools()


async def test_with_the_broker_away_the_client_is_told_to_retry_and_what_is_known_goes_on(caplog):
    """The log is told once, although every second is another attempt."""
    async with fleet("away") as cluster:
        (keeper,), (transport,) = cluster.keepers, cluster.transports
        (factory,) = in_process_transports()
        unopened = factory.create("memory://away", {})
        unready = PoolKeeper(lambda: unopened, cluster.workers[0], 1200.0)
        for _ in range(3):
            with pytest.raises(InferenceError) as refused:
                await unready.change()
            assert refused.value.code == "QUEUE_UNAVAILABLE"
        assert caplog.text.count("the store of resource pools") == 1
        await keeper.create("p", PoolSpec())
        await transport.close()
        assert (await keeper.leased("p")).name == "p"


async def test_more_than_a_message_of_pools_is_refused():
    async with fleet("large") as cluster:
        (keeper,) = cluster.keepers
        spec = PoolSpec(pinned_models=tuple(f"{number:0256d}" for number in range(64)))
        for number in range(28):
            await keeper.create(f"p{number}", spec)
        with pytest.raises(InferenceError) as refused:
            await keeper.create("large", replace(spec, pinned_models=spec.pinned_models * 4))
        assert refused.value.code == "TOO_MANY_POOLS"
        assert len(keeper.pools.pools) == 28


async def test_pools_of_a_later_release_are_left_as_they_are():
    async with fleet("later") as cluster:
        (keeper,) = cluster.keepers
        await keeper.create("p", PoolSpec({"l4": 1}))
        store = await cluster.transports[0].key_value(POOLS)
        before = await store.get(KEY)
        assert before is not None
        later = orjson.dumps({"version": 2, "leases": []})
        revision = await store.compare_and_set(KEY, later, before.revision)
        await cluster.beat("w")
        for change in (
            keeper.create("q", PoolSpec()),
            keeper.change(lambda pools: delete(pools, "p")),
            keeper.change(),
        ):
            with pytest.raises(InferenceError, match="version 2") as refused:
                await change
            assert refused.value.code == "QUEUE_UNAVAILABLE"
        after = await store.get(KEY)
        assert after is not None
        assert (after.value, after.revision) == (later, revision)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"version": 1, "pools": 7, "workers": {}}'])
async def test_what_is_broken_is_begun_anew(value: bytes):
    async with fleet("broken") as cluster:
        store = await cluster.transports[0].key_value(POOLS)
        await store.compare_and_set(KEY, value, None)
        pools = await cluster.keepers[0].create("p", PoolSpec())
        assert set(pools.pools) == {"p"}

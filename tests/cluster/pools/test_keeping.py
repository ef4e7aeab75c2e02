"""Gateways change the pools of one store."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace

import orjson
import pytest
from sie_cluster.fleet.pools.changes import create, delete, renew
from sie_cluster.fleet.pools.document import KEY, decode_pools
from sie_cluster.fleet.pools.pools import Pools
from sie_cluster.gateway.pools.keeping import PoolKeeper
from sie_cluster.in_process_queue import in_process_transports
from sie_cluster.queue.subjects import POOLS

from sie_core.contracts import InferenceError, PoolSpec
from tests.cluster.pools.fleet import fleet

LEASE_S = 1200.0


def made(name: str, spec: PoolSpec):
    return lambda pools, now: create(pools, name, spec, now, LEASE_S)


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
                        await keeper.change(made(name, PoolSpec({"l4": chance.randint(1, 4)})))
                    else:
                        await keeper.change(lambda pools, now: delete(pools, name))

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(client(keeper, name) for keeper in cluster.keepers for name in ("p", "q", "r")))
        for name in ("p", "q", "r"):
            with suppress(InferenceError):
                await cluster.keepers[0].change(lambda pools, now, name=name: delete(pools, name))
        watching.cancel()
        ended = await cluster.keepers[1].change(lambda pools, now: pools)
        assert (wrong, ended) == ([], Pools())
        assert cluster.events["created"] == cluster.events["deleted"] > 0
        assert cluster.events["assigned"] == cluster.events["released"] > 0


async def test_every_change_counts_although_writers_are_many():
    async with fleet("counting", 4) as cluster:
        names = [f"p{number}" for number in range(40)]
        await asyncio.gather(
            *(cluster.keepers[place % 4].change(made(name, PoolSpec())) for place, name in enumerate(names))
        )
        pools = await cluster.keepers[0].change(lambda pools, now: pools)
        assert sorted(pools.pools) == sorted(names)
        assert cluster.events == {"created": 40}


async def test_whoever_is_there_sweeps_a_lease_that_ended():
    async with fleet("sweeping", 2) as cluster:
        one, other = cluster.keepers
        await cluster.beat("w")
        await one.change(made("p", PoolSpec({"l4": 1})))
        assert one.leased_gpus() == {("l4", "default"): 1}
        cluster.now += LEASE_S - 1
        await one.change(lambda pools, now: renew(pools, "p", now, LEASE_S))
        cluster.now += LEASE_S - 1
        assert (await other.change(lambda pools, now: pools)).pool_of("w") == "p"
        cluster.now += 1
        swept = await other.change(lambda pools, now: pools)
        assert (swept.pool_of("w"), other.state(swept.pools["p"])) == ("default", "expired")
        cluster.now += 60
        assert (await one.change(lambda pools, now: pools)).pools == {}
        assert cluster.events == {"created": 1, "assigned": 1, "renewed": 1, "released": 1, "expired": 1}


async def test_a_pool_that_waits_is_told_to_a_scaler_although_nobody_asks_it_for_anything():
    async with fleet("waiting") as cluster:
        (keeper,) = cluster.keepers
        await keeper.change(made("p", PoolSpec({"l4": 2, "a100": 1}, bundle="gliner")))
        await keeper.change(made("q", PoolSpec(minimum_worker_count=2)))
        assert keeper.leased_gpus() == {("l4", "gliner"): 2, ("a100", "gliner"): 1, ("any", "default"): 2}
        await keeper.change(lambda pools, now: delete(pools, "p"))
        await cluster.beat("w")
        await keeper.change(lambda pools, now: pools)
        assert keeper.leased_gpus() == {("l4", "default"): 1, ("any", "default"): 1}
        await keeper.change(made("q", PoolSpec({"l4": 3})))
        assert keeper.leased_gpus() == {("l4", "default"): 3}
        cluster.now += LEASE_S
        assert keeper.leased_gpus() == {("l4", "default"): 1}, "until the lease is swept"
        await keeper.change(lambda pools, now: pools)
        assert keeper.leased_gpus() == {}


async def test_a_pool_is_active_once_its_worker_says_that_it_serves_it_alone():
    async with fleet("active") as cluster:
        (keeper,) = cluster.keepers
        await cluster.beat("w")
        pools = await keeper.change(made("p", PoolSpec({"l4": 1})))
        assert (pools.pool_of("w"), keeper.state(pools.pools["p"])) == ("p", "pending")
        await cluster.beat("w", resource_pool="p")
        assert keeper.state(pools.pools["p"]) == "active"


async def test_a_worker_that_drains_is_given_to_nobody():
    async with fleet("draining") as cluster:
        await cluster.beat("w", up=False)
        pools = await cluster.keepers[0].change(made("p", PoolSpec({"l4": 1})))
        assert pools.workers == {}


async def test_a_request_finds_a_pool_that_another_gateway_made_and_no_other():
    async with fleet("leased", 2) as cluster:
        one, other = cluster.keepers
        await one.change(made("p", PoolSpec(bundle="default")))
        assert (await other.leased("p")).spec.bundle == "default"
        with pytest.raises(InferenceError, match="no resource pool 'q'") as refused:
            await other.leased("q")
        assert refused.value.code == "POOL_NOT_FOUND"


async def test_a_request_finds_a_pool_that_another_gateway_made_just_after_its_own_last_looked():
    async with fleet("just-made", 2) as cluster:
        one, other = cluster.keepers
        await other.change(lambda pools, now: pools)
        await one.change(made("p", PoolSpec()))
        assert (await other.leased("p")).name == "p"


async def test_ten_thousand_invented_pools_are_looked_up_seldom_and_kept_nowhere():
    async with fleet("invented") as cluster:
        (keeper,), looks = cluster.keepers, 0

        def counted(change):
            nonlocal looks
            looks += 1
            return real(change)

        real, keeper.change = keeper.change, counted
        names = [f"invented-{number}" for number in range(10_000)]
        refused = await asyncio.gather(*map(keeper.leased, names), return_exceptions=True)
        assert {isinstance(each, InferenceError) and each.code for each in refused} == {"POOL_NOT_FOUND"}
        assert looks < 100
        assert keeper.pools == Pools()


async def test_with_the_broker_away_the_client_is_told_to_retry_and_what_is_known_goes_on(caplog):
    """The log is told once, although every second is another attempt."""
    async with fleet("away") as cluster:
        known = await cluster.keepers[0].change(made("p", PoolSpec()))
        (factory,) = in_process_transports()
        unopened = factory.create("memory://away", {})
        keeper = PoolKeeper(lambda: unopened, cluster.workers[0], clock=lambda: cluster.now)
        for _ in range(3):
            with pytest.raises(InferenceError) as refused:
                await keeper.change(lambda pools, now: pools)
        assert refused.value.code == "QUEUE_UNAVAILABLE"
        assert caplog.text.count("the store of resource pools") == 1
        keeper.pools = known
        assert (await keeper.leased("p")).name == "p"


async def test_more_than_a_message_of_pools_is_refused():
    async with fleet("large") as cluster:
        (keeper,) = cluster.keepers
        spec = PoolSpec(pinned_models=tuple(f"{number:0256d}" for number in range(64)))
        for number in range(28):
            await keeper.change(made(f"p{number}", spec))
        with pytest.raises(InferenceError) as refused:
            await keeper.change(made("large", replace(spec, pinned_models=spec.pinned_models * 4)))
        assert refused.value.code == "TOO_MANY_POOLS"
        assert len(keeper.pools.pools) == 28


async def test_pools_of_a_later_release_are_left_as_they_are():
    async with fleet("later") as cluster:
        (keeper,) = cluster.keepers
        await keeper.change(made("p", PoolSpec({"l4": 1})))
        store = await cluster.transports[0].key_value(POOLS)
        before = await store.get(KEY)
        assert before is not None
        later = orjson.dumps({"version": 2, "leases": []})
        revision = await store.compare_and_set(KEY, later, before.revision)
        await cluster.beat("w")
        for change in (made("q", PoolSpec()), lambda pools, now: delete(pools, "p"), lambda pools, now: pools):
            with pytest.raises(InferenceError, match="version 2") as refused:
                await keeper.change(change)
            assert refused.value.code == "QUEUE_UNAVAILABLE"
        after = await store.get(KEY)
        assert after is not None
        assert (after.value, after.revision) == (later, revision)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"version": 1, "pools": 7, "workers": {}}'])
async def test_what_is_broken_is_begun_anew(value: bytes):
    async with fleet("broken") as cluster:
        store = await cluster.transports[0].key_value(POOLS)
        await store.compare_and_set(KEY, value, None)
        pools = await cluster.keepers[0].change(made("p", PoolSpec()))
        assert set(pools.pools) == {"p"}

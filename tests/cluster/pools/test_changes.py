"""The pools as a value: who gets which worker, and when a lease ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sie_cluster.fleet.pools.changes import (
    EXPIRED_KEPT_S,
    LOST_S,
    MOST_POOLS,
    assign,
    choose,
    create,
    delete,
    is_eligible,
    renew,
    sweep,
)
from sie_cluster.fleet.pools.pools import Pools

from sie_core.contracts import InferenceError, PoolSpec, PoolWorker

LEASE_S = 1200.0
L4, A100 = "l4", "a100"


def worker(name: str, profile: str = L4, gpus: int = 1, bundle: str = "default") -> PoolWorker:
    return PoolWorker(name, profile, bundle, "_default", gpus)


def fleet(*workers: PoolWorker) -> dict[str, PoolWorker]:
    return {each.name: each for each in workers}


def names(pools: Pools, pool: str) -> list[str]:
    return [each.name for each in pools.workers_of(pool)]


FOUR = fleet(worker("a"), worker("b"), worker("c", A100), worker("d", A100, 4))


def test_a_pool_gets_the_gpus_it_wants_and_no_more():
    pools = assign(create(Pools(), "p", PoolSpec({L4: 1, A100: 2}), 0, LEASE_S), FOUR, 0)
    assert names(pools, "p") == ["a", "c", "d"]
    assert pools.state(pools.pools["p"], 1) == "active"
    assert pools.pool_of("b") == "default"


def test_a_cap_leaves_a_worker_with_too_many_gpus():
    pools = assign(create(Pools(), "p", PoolSpec({A100: 2}, {A100: 2}), 0, LEASE_S), FOUR, 0)
    assert names(pools, "p") == ["c"]
    assert pools.state(pools.pools["p"], 1) == "pending"


def test_a_pool_without_gpus_gets_the_number_of_workers_it_wants():
    for least, got in ((None, 1), (0, 0), (3, 3)):
        pools = assign(create(Pools(), "p", PoolSpec(minimum_worker_count=least), 0, LEASE_S), FOUR, 0)
        assert len(names(pools, "p")) == got
        assert pools.state(pools.pools["p"], 1) == "active"


def test_only_workers_of_the_bundle_and_the_queue_pool_are_taken():
    some = fleet(worker("a"), worker("g", bundle="gliner"), replace(worker("q"), queue_pool="bulk"))
    of_bundle = assign(create(Pools(), "p", PoolSpec(bundle="gliner", minimum_worker_count=3), 0, LEASE_S), some, 0)
    of_queue = assign(create(Pools(), "p", PoolSpec(queue_pool="bulk", minimum_worker_count=3), 0, LEASE_S), some, 0)
    assert (names(of_bundle, "p"), names(of_queue, "p")) == (["g"], ["q"])


def test_a_pool_that_waits_gets_a_worker_that_comes():
    pools = assign(create(Pools(), "p", PoolSpec({L4: 2}), 0, LEASE_S), fleet(worker("a")), 0)
    assert pools.state(pools.pools["p"], 1) == "pending"
    pools = assign(pools, fleet(worker("a"), worker("b")), 5)
    assert pools.state(pools.pools["p"], 6) == "active"


def test_another_spec_frees_what_is_wanted_no_more_and_keeps_the_rest():
    pools = assign(create(Pools(), "p", PoolSpec({L4: 1}), 0, LEASE_S), FOUR, 0)
    more = assign(create(pools, "p", PoolSpec({L4: 2}), 9, LEASE_S), FOUR, 9)
    less = assign(create(more, "p", PoolSpec({L4: 1}), 10, LEASE_S), FOUR, 10)
    assert (names(more, "p"), names(less, "p")) == (["a", "b"], ["a"])
    assert (less.pools["p"].created_at, less.pools["p"].until) == (0, 10 + LEASE_S)


def test_a_freed_worker_goes_to_a_pool_that_waits_at_once():
    pools = create(create(Pools(), "p", PoolSpec({L4: 2}), 0, LEASE_S), "q", PoolSpec({L4: 1}), 1, LEASE_S)
    pools = assign(pools, FOUR, 1)
    assert names(pools, "q") == []
    pools = assign(create(pools, "p", PoolSpec({L4: 1}), 2, LEASE_S), FOUR, 2)
    assert names(pools, "q") == ["b"]


def test_a_worker_that_is_not_heard_of_keeps_its_place_for_a_while_and_counts_for_nothing():
    pools = assign(create(Pools(), "p", PoolSpec({L4: 1}), 0, LEASE_S), FOUR, 0)
    rest = {name: each for name, each in FOUR.items() if name != "a"}
    lost = assign(pools, rest, 10)
    assert names(lost, "p") == ["a"]
    assert lost.state(lost.pools["p"], 10) == "pending"
    assert assign(lost, FOUR, 12).workers == pools.workers
    assert names(assign(lost, rest, 10 + LOST_S), "p") == ["b"]


def test_a_lease_ends_unless_it_is_renewed_and_its_workers_are_free():
    pools = assign(create(Pools(), "p", PoolSpec({L4: 1}), 0, LEASE_S), FOUR, 0)
    pools = renew(pools, "p", 600, LEASE_S)
    assert sweep(pools, 600 + LEASE_S - 1) == pools
    ended = sweep(pools, 600 + LEASE_S)
    assert ended.workers == {}
    assert ended.state(ended.pools["p"], 600 + LEASE_S) == "expired"
    with pytest.raises(InferenceError, match="its lease has ended") as refused:
        renew(ended, "p", 600 + LEASE_S, LEASE_S)
    assert refused.value.code == "POOL_NOT_FOUND"
    assert sweep(ended, 600 + LEASE_S + EXPIRED_KEPT_S).pools == {}


def test_the_default_pool_is_neither_made_nor_deleted_and_never_ends():
    for change in (lambda: create(Pools(), "default", PoolSpec(), 0, 1), lambda: delete(Pools(), "default")):
        with pytest.raises(InferenceError) as refused:
            change()
        assert refused.value.code == "FORBIDDEN"
    assert renew(Pools(), "default", 10**9, 1) == Pools()


def test_ten_thousand_invented_names_are_bounded():
    pools = Pools()
    for number in range(10_000):
        with suppress(InferenceError):
            pools = create(pools, f"p{number}", PoolSpec(), 0, LEASE_S)
    assert len(pools.pools) == MOST_POOLS
    with pytest.raises(InferenceError) as refused:
        create(pools, "another", PoolSpec(), 0, LEASE_S)
    assert refused.value.code == "TOO_MANY_POOLS"


POOL_NAMES = st.sampled_from(["p", "q", "r"])
SPECS = st.builds(
    PoolSpec,
    gpus=st.dictionaries(st.sampled_from([L4, A100]), st.integers(1, 4)),
    gpu_caps=st.dictionaries(st.sampled_from([L4, A100]), st.integers(1, 6)),
    bundle=st.sampled_from([None, "default", "gliner"]),
    minimum_worker_count=st.sampled_from([None, 0, 1, 3]),
)
WORKERS = st.builds(
    worker,
    st.sampled_from("abcdefg"),
    st.sampled_from([L4, A100, "any"]),
    st.integers(1, 4),
    st.sampled_from(["default", "gliner"]),
)
STEPS = st.lists(
    st.tuples(
        st.floats(0.5, 700),
        st.one_of(
            st.tuples(st.just("create"), POOL_NAMES, SPECS),
            st.tuples(st.just("renew"), POOL_NAMES),
            st.tuples(st.just("delete"), POOL_NAMES),
            st.tuples(st.just("fleet"), st.lists(WORKERS, max_size=7)),
        ),
    ),
    max_size=25,
)


@given(STEPS)
def test_whatever_happens_no_worker_is_in_two_pools_none_is_lost_and_leases_end(steps):
    pools, live, now = Pools(), {}, 0.0
    until: dict[str, float] = {}
    for passed, (what, *arguments) in steps:
        now += passed
        try:
            match what:
                case "create":
                    pools = create(pools, *arguments, now, LEASE_S)
                    until[arguments[0]] = now + LEASE_S
                case "renew":
                    pools = renew(pools, *arguments, now, LEASE_S)
                    until[arguments[0]] = now + LEASE_S
                case "delete":
                    pools = delete(pools, *arguments)
                case "fleet":
                    live = fleet(*arguments[0])
        except InferenceError:
            assert arguments[0] not in pools.pools or now >= until[arguments[0]]
        pools = assign(sweep(pools, now), live, now)
        assert assign(pools, live, now) == pools, "assigning twice changes nothing"
        for name, each in pools.workers.items():
            pool = pools.pools[each.pool]
            assert now < pool.until == until[pool.name], "a worker of a lease that has ended"
            assert is_eligible(pool.spec, each.worker)
            assert name == each.worker.name
            assert name in live or each.lost_at is not None
        for pool in pools.pools.values():
            own = [each.worker for each in pools.workers.values() if each.pool == pool.name]
            for profile, cap in pool.spec.gpu_caps.items():
                assert sum(each.gpus for each in own if each.profile == profile) <= cap
        for pool in pools.pools.values():
            for name in live.keys() - pools.workers.keys() if now < pool.until else ():
                free = [*pools.workers_of(pool.name), live[name]]
                assert live[name] not in choose(pool.spec, free), f"{name} is free and {pool.name} waits for it"

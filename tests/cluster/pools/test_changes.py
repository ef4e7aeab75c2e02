"""The pools as a value: who gets which worker, and when a lease ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sie_cluster.fleet.pools.changes import MOST_POOLS, choose, create, delete, is_eligible, settle
from sie_cluster.fleet.pools.pools import Pools, has_enough

from sie_core.contracts import InferenceError, PoolSpec, PoolWorker

L4, A100 = "l4", "a100"


def worker(name: str, profile: str = L4, gpus: int = 1, bundle: str = "default") -> PoolWorker:
    return PoolWorker(name, profile, bundle, queue_pool="_default", gpus=gpus)


def fleet(*workers: PoolWorker) -> dict[str, PoolWorker]:
    return {each.name: each for each in workers}


def settled(pools: Pools, live: dict[str, PoolWorker]) -> Pools:
    """With every lease going on."""
    return settle(pools, pools.pools.keys(), live)


def enough(pools: Pools, pool: str) -> bool:
    return has_enough(pools.pools[pool].spec, pools.workers_of(pool))


def names(pools: Pools, pool: str) -> list[str]:
    return [each.name for each in pools.workers_of(pool)]


FOUR = fleet(worker("a"), worker("b"), worker("c", A100), worker("d", A100, 4))


def test_a_pool_gets_the_gpus_it_wants_and_no_more():
    pools = settled(create(Pools(), "p", PoolSpec({L4: 1, A100: 2}), 0), FOUR)
    assert names(pools, "p") == ["a", "c", "d"]
    assert enough(pools, "p")
    assert pools.pool_of("b") == "default"


def test_a_cap_leaves_a_worker_with_too_many_gpus():
    pools = settled(create(Pools(), "p", PoolSpec({A100: 2}, {A100: 2}), 0), FOUR)
    assert names(pools, "p") == ["c"]
    assert not enough(pools, "p")


def test_a_pool_without_gpus_gets_the_number_of_workers_it_wants():
    for least, got in ((None, 1), (0, 0), (3, 3)):
        pools = settled(create(Pools(), "p", PoolSpec(minimum_worker_count=least), 0), FOUR)
        assert len(names(pools, "p")) == got
        assert enough(pools, "p")


def test_only_workers_of_the_bundle_and_the_queue_pool_are_taken():
    some = fleet(worker("a"), worker("g", bundle="gliner"), replace(worker("q"), queue_pool="bulk"))
    of_bundle = settled(create(Pools(), "p", PoolSpec(bundle="gliner", minimum_worker_count=3), 0), some)
    of_queue = settled(create(Pools(), "p", PoolSpec(queue_pool="bulk", minimum_worker_count=3), 0), some)
    assert (names(of_bundle, "p"), names(of_queue, "p")) == (["g"], ["q"])


def test_a_pool_that_waits_gets_a_worker_that_comes():
    pools = settled(create(Pools(), "p", PoolSpec({L4: 2}), 0), fleet(worker("a")))
    assert not enough(pools, "p")
    pools = settled(pools, fleet(worker("a"), worker("b")))
    assert enough(pools, "p")


def test_another_spec_frees_what_is_wanted_no_more_and_keeps_the_rest():
    pools = settled(create(Pools(), "p", PoolSpec({L4: 1}), 0), FOUR)
    more = settled(create(pools, "p", PoolSpec({L4: 2}), 9), FOUR)
    less = settled(create(more, "p", PoolSpec({L4: 1}), 10), FOUR)
    assert (names(more, "p"), names(less, "p")) == (["a", "b"], ["a"])
    assert less.pools["p"].created_at == 0


def test_a_freed_worker_goes_to_a_pool_that_waits_at_once():
    pools = create(create(Pools(), "p", PoolSpec({L4: 2}), 0), "q", PoolSpec({L4: 1}), 1)
    pools = settled(pools, FOUR)
    assert names(pools, "q") == []
    pools = settled(create(pools, "p", PoolSpec({L4: 1}), 2), FOUR)
    assert names(pools, "q") == ["b"]


def test_a_worker_that_is_not_heard_of_keeps_its_place_until_it_is_lost():
    pools = settled(create(Pools(), "p", PoolSpec({L4: 1}), 0), FOUR)
    rest = {name: each for name, each in FOUR.items() if name != "a"}
    missing = settled(pools, rest)
    assert names(missing, "p") == ["a"]
    assert settled(missing, FOUR) == pools
    assert names(settle(missing, {"p"}, rest, lost={"a"}), "p") == ["b"]


def test_the_workers_of_a_lease_that_ended_are_free_and_its_pool_is_told_until_it_is_forgotten():
    pools = settled(create(Pools(), "p", PoolSpec({L4: 1}), 0), FOUR)
    ended = settle(pools, set(), FOUR)
    assert (ended.pools, ended.workers) == (pools.pools, {})
    assert settle(ended, set(), FOUR, forgotten={"p"}) == Pools()
    again = create(ended, "p", PoolSpec({L4: 1}), 9, anew=True)
    assert again.pools["p"].created_at == 9


def test_the_oldest_pool_is_the_one_that_was_made_first_whatever_the_clocks_say():
    pools = create(create(Pools(), "p", PoolSpec({L4: 2}), 1_000.0), "q", PoolSpec({L4: 1}), 1.0)
    assert names(settled(pools, FOUR), "p") == ["a", "b"]
    pools = create(pools, "p", PoolSpec({L4: 2}), 2_000.0, anew=True)
    assert names(settled(pools, FOUR), "q") == ["a"]


def test_the_default_pool_is_neither_made_nor_deleted():
    for change in (lambda: create(Pools(), "default", PoolSpec(), 0), lambda: delete(Pools(), "default")):
        with pytest.raises(InferenceError) as refused:
            change()
        assert refused.value.code == "FORBIDDEN"


def test_ten_thousand_invented_names_are_bounded():
    pools = Pools()
    for number in range(10_000):
        with suppress(InferenceError):
            pools = create(pools, f"p{number}", PoolSpec(), 0)
    assert len(pools.pools) == MOST_POOLS
    with pytest.raises(InferenceError) as refused:
        create(pools, "another", PoolSpec(), 0)
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
    st.one_of(
        st.tuples(st.just("create"), POOL_NAMES, SPECS),
        st.tuples(st.just("renew"), POOL_NAMES),
        st.tuples(st.just("end"), POOL_NAMES),
        st.tuples(st.just("delete"), POOL_NAMES),
        st.tuples(st.just("lose"), st.sampled_from("abcdefg")),
        st.tuples(st.just("fleet"), st.lists(WORKERS, max_size=7)),
    ),
    max_size=25,
)


@given(STEPS)
def test_whatever_happens_no_worker_is_in_two_pools_none_is_lost_and_leases_end(steps):
    pools, live, leased, lost = Pools(), {}, set(), set()
    for what, *arguments in steps:
        match what:
            case "create":
                name, spec = arguments
                pools = create(pools, name, spec, 0.0, anew=name not in leased)
                leased.add(name)
            case "renew":
                leased |= set(arguments) & pools.pools.keys()
            case "end":
                leased -= set(arguments)
            case "delete" if arguments[0] in pools.pools:
                pools = delete(pools, *arguments)
            case "lose":
                lost = set(arguments)
            case "fleet":
                live = fleet(*arguments[0])
        pools = settle(pools, leased, live, lost=lost)
        assert settle(pools, leased, live, lost=lost) == pools, "settling twice changes nothing"
        for name, each in pools.workers.items():
            pool = pools.pools[each.pool]
            assert pool.name in leased, "a worker of a lease that has ended"
            assert is_eligible(pool.spec, each.worker)
            assert name == each.worker.name
            assert name in live or name not in lost
        for pool in pools.pools.values():
            own = [each.worker for each in pools.workers.values() if each.pool == pool.name]
            for profile, cap in pool.spec.gpu_caps.items():
                assert sum(each.gpus for each in own if each.profile == profile) <= cap
        for pool in pools.pools.values():
            for name in live.keys() - pools.workers.keys() if pool.name in leased else ():
                free = [*pools.workers_of(pool.name), live[name]]
                assert live[name] not in choose(pool.spec, free), f"{name} is free and {pool.name} waits for it"

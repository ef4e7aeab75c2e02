"""Which keys of the queue have subjects of their own: names that clients invent cannot fill the broker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sie_bundle.bundles.registry import Registry, registry_of_one_bundle
from sie_cluster.fleet.placement.keys import key_of
from sie_cluster.gateway.keys import Keys
from sie_cluster.gateway.routing import Router
from sie_cluster.queue.subjects import BUCKETS, KEY_IDLE_S, SHARED_KEYS, shared_subject, work_subject

from sie_core.catalog.configs.reading import config_of
from sie_core.catalog.configs.snapshot import make_catalog

POOL = "_default"


def work(model: str, lora: str | None = None) -> str:
    return work_subject(model, POOL, "default", lora=lora)


def test_ten_thousand_invented_loras_are_sixteen_keys_of_about_a_size() -> None:
    counts = Counter(work("org/model", f"lora-{number}") for number in range(10_000))
    assert len(counts) == BUCKETS
    assert max(counts.values()) < 2 * min(counts.values())
    assert work("org/model") not in counts


def test_up_to_64_loras_that_a_config_declares_are_keys_of_their_own() -> None:
    def registry_of(declared: int) -> Registry:
        loras = ", ".join(f"lora-{number}: {{weights_path: /none}}" for number in range(declared))
        text = f"{{sie_id: org/a, hf_id: org/a, loras: {{{loras}}}}}"
        catalog = make_catalog(1, [config_of(text.encode(), source="test", folder=Path())])
        return registry_of_one_bundle(catalog, "default", POOL)

    few, many = (Router(POOL, registry_of(number)) for number in (64, 65))
    own = {few.route("org/a", lora=f"lora-{number}").subject for number in range(64)}
    assert len(own) == 64
    assert few.route("org/a", lora="invented").subject == work("org/a", "invented")
    assert many.route("org/a", lora="lora-1").subject == work("org/a", "lora-1")
    key = key_of(few.route("org/a", lora="lora-1").subject)
    assert key is not None
    assert key.is_of("lora-1")
    assert not key.is_of("lora-2")


def test_keys_beyond_the_most_share_a_few_until_others_are_idle() -> None:
    now = 0.0
    keys = Keys(most=10, clock=lambda: now)
    given = [keys.subject(POOL, work(f"org/{number}")) for number in range(1_000)]
    assert given[:10] == [work(f"org/{number}") for number in range(10)]
    assert all((key := key_of(each)) and key.is_shared for each in given[10:])
    assert len(set(given[10:])) == SHARED_KEYS
    assert keys.subject(POOL, work("org/3")) == work("org/3")
    assert keys.subject("other", work_subject("org/20", "other", "default")).endswith("org__20.0")
    now = KEY_IDLE_S + 1
    assert keys.subject(POOL, work("org/20")) == work("org/20")


def test_queue_pools_that_clients_invent_are_forgotten_once_they_are_idle() -> None:
    now = 0.0
    keys = Keys(clock=lambda: now)
    for number in range(100):
        keys.subject(f"invented-{number}", work_subject("org/a", f"invented-{number}", "default"))
        now += KEY_IDLE_S / 10
    assert len(keys._given) <= 12


def test_what_workers_pull_counts_and_keeps_its_own_subject() -> None:
    pulled = [{work(f"org/{number}") for number in range(6)}, {work(f"org/{number}") for number in range(4, 10)}]
    keys = Keys(lambda: pulled, most=10)
    assert keys.subject(POOL, work("org/9")) == work("org/9")
    assert keys.subject(POOL, work("org/10")) == shared_subject(work("org/10"))
    other_pool = work_subject("org/10", "other", "default")
    assert keys.subject("other", other_pool) == other_pool

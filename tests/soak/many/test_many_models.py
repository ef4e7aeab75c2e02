"""Twelve models under a limit that holds four: all is answered, memory stays below, loads stay near an ideal LRU's."""

from __future__ import annotations

import json

import pytest

from tests.conftest import run_server
from tests.soak.many.conftest import HELD
from tests.soak.many.models import names
from tests.soak.many.serving import memory_group, metric, models, resident, until
from tests.soak.many.traffic import Traffic, misses_of_lru, zipf

MB = 10**6


def settings(catalog, **more):
    return {"SIE_MODELS_DIR": str(catalog.folder), "SIE_DEVICE": "cpu", "OMP_NUM_THREADS": "1", **more}


def test_requests_by_zipf_s_law_stay_within_the_limit_and_near_the_loads_of_an_ideal_lru(
    catalog, requests_sent, tmp_path
):
    limit = catalog.limit()
    with run_server(tmp_path, settings(catalog, SIE_MEMORY_LIMIT_BYTES=str(limit))) as server:
        traffic = Traffic(server.url, zipf(names(), requests_sent))
        traffic.run(threads=1)
        loads, peak = metric(server.url, "sie_model_loads_total"), resident(server, "VmHWM")
    ideal = misses_of_lru(traffic.admitted, HELD)
    print(
        f"{loads:.0f} loads, {ideal} of an ideal LRU; peak {peak / MB:.0f} of {limit / MB:.0f} MB, cost {catalog.cost}"
    )
    assert not traffic.failures
    assert traffic.answered == requests_sent
    assert peak <= limit
    assert loads <= 1.5 * ideal


def test_eight_clients_lose_nothing_and_memory_comes_back_when_they_leave(catalog, requests_sent, tmp_path):
    limit = catalog.limit()
    env = settings(catalog, SIE_MEMORY_LIMIT_BYTES=str(limit), SIE_IDLE_EVICT_S="2")
    with run_server(tmp_path, env) as server:
        traffic = Traffic(server.url, zipf(names(), requests_sent, seed=1))
        traffic.run(threads=8)
        loads, peak = metric(server.url, "sie_model_loads_total"), resident(server, "VmHWM")
        until(lambda: not any(model["loaded"] for model in models(server.url).values()), "the unload of idle models")
        until(lambda: resident(server) <= 1.1 * catalog.base, "the end of what they took")
        after = resident(server)
        assert (server.probe("/livez"), server.probe("/readyz")) == (200, 200)
    told = [f"{value / MB:.0f}" for value in (peak, limit, after, catalog.base)]
    print(f"{loads:.0f} loads; peak {told[0]} of {told[1]} MB, then {told[2]}; after one load and unload {told[3]}")
    assert not traffic.failures
    assert traffic.answered == requests_sent
    assert peak <= limit


def test_a_memory_cgroup_is_respected(requests_sent, tmp_path):
    """The limit is the kernel's: a server that went beyond it would be killed. Fakes allocate what they say."""
    for number, name in enumerate(names()):
        loadtime = {"memory_bytes": 90 * MB}
        profile = {"adapter_path": "fake", "adapter_options": {"loadtime": loadtime}}
        config = {"sie_id": name, "package_backed": True, "tasks": {"encode": {"dense": {"dim": 8}}}}
        (tmp_path / f"{number}.yaml").write_text(json.dumps({**config, "profiles": {"default": profile}}))
    limit = 600 * MB
    with memory_group(limit) as group:
        if group is None:
            pytest.skip("this machine lets the tests make no memory cgroup")
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        env = {"SIE_MODELS_DIR": str(tmp_path), "SIE_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
        with run_server(tmp_path / "server", env, prefix=enter) as server:
            traffic = Traffic(server.url, zipf(names(), requests_sent, seed=2))
            traffic.run(threads=2)
            total, loads = (
                metric(server.url, "sie_device_memory_total_bytes"),
                metric(server.url, "sie_model_loads_total"),
            )
            held = sum(model["loaded"] for model in models(server.url).values())
    print(f"{loads:.0f} loads; {held} of {len(names())} models held in {total / MB:.0f} MB")
    assert total == limit // 4096 * 4096
    assert not traffic.failures
    assert traffic.answered == requests_sent
    assert 2 <= held <= 5

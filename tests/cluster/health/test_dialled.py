"""A gateway that dials workers shows what each says of itself, and those that do not answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sie_cluster.gateway.sight.dialled import DialledWorkers, _read, dialled_workers
from sie_cluster.settings import ClusterSettings

from sie_core.serving.listening import reserve
from sie_core.settings import SettingsError, load_settings
from tests.conftest import run_server

MODEL = "sie-fake/dense"
BOUND_S = 60.0


@contextlib.asynccontextmanager
async def dialling(*urls: str, token: str | None = None) -> AsyncIterator[DialledWorkers]:
    dialled = DialledWorkers(urls, token)
    running = asyncio.create_task(dialled.run())
    try:
        yield dialled
    finally:
        running.cancel()
        await asyncio.wait([running])


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not holds():  # noqa: ASYNC110 - what is shown sets no event
            await asyncio.sleep(0.05)


async def test_each_worker_is_shown_as_it_says_and_those_that_are_away_by_their_address(tmp_path: Path) -> None:
    env = {"SIE_AUTH_MODE": "token", "SIE_AUTH_TOKEN": "sesame", "SIE_WORKER_ID": "w7", "SIE_MACHINE_PROFILE": "l4"}
    with reserve("127.0.0.1", 0) as (away, _), run_server(tmp_path, env, ["--preload", MODEL]) as server:
        named = server.url.replace("127.0.0.1", "localhost")
        async with dialling(named, away, token="sesame") as dialled:
            await until(lambda: any(worker.loaded_models for worker in dialled.workers()))
            assert len(dialled.workers()) == 2, "a name with addresses of both families is one worker"
            shown = {worker.url: worker for worker in dialled.workers()}
            one = shown[server.url]
            assert (one.name, one.healthy, one.gpu, list(one.loaded_models)) == ("w7", True, "l4", [MODEL])
            assert not shown[away].healthy
            held = [(model.name, model.state, model.worker_count) for model in dialled.held_models()]
            assert held == [(MODEL, "loaded", 1)]
            server.process.kill()
            await until(lambda: not any(worker.healthy for worker in dialled.workers()))
            assert dialled.held_models() == []


async def test_an_address_that_is_none_is_away_and_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = ("http://worker..b:8081", "http://worker-2:80810")
    with run_server(tmp_path, args=["--preload", MODEL]) as server:
        async with dialling(*wrong, server.url) as dialled:
            await until(lambda: any(worker.healthy for worker in dialled.workers()))
            await until(lambda: all(f"the worker at {url} is not seen" in caplog.text for url in wrong))
            assert {worker.url: worker.healthy for worker in dialled.workers()} == {
                server.url: True, **dict.fromkeys(wrong, False)
            }  # fmt: skip


async def test_a_worker_that_refuses_the_token_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with run_server(tmp_path, {"SIE_AUTH_MODE": "token", "SIE_AUTH_TOKEN": "sesame"}) as server:
        async with dialling(server.url, token="wrong") as dialled:
            await until(lambda: "token" in caplog.text)
            assert [worker.healthy for worker in dialled.workers()] == [False]


def test_it_is_refused_without_an_address_to_dial() -> None:
    assert dialled_workers(load_settings(ClusterSettings, gateway_workers="http://w1:8081")) is None
    with pytest.raises(SettingsError, match="SIE_GATEWAY_WORKERS"):
        dialled_workers(load_settings(ClusterSettings, gateway_health_mode="ws"))
    with pytest.raises(SettingsError, match="k8s-service"):
        load_settings(ClusterSettings, gateway_health_mode="ws", gateway_k8s_service="a.b/c")
    with pytest.raises(SettingsError, match="w1:8081"):
        load_settings(ClusterSettings, gateway_health_mode="ws", gateway_workers="w1:8081")


def test_the_pods_of_a_headless_service_are_dialled_by_its_name_in_the_cluster() -> None:
    environ = {
        "SIE_GATEWAY_HEALTH_MODE": "ws", "SIE_GATEWAY_WORKERS": "http://w1:8081", "SIE_GATEWAY_K8S_SERVICE": "workers",
        "SIE_GATEWAY_K8S_NAMESPACE": "inference", "SIE_GATEWAY_K8S_PORT": "9000",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        dialled = dialled_workers(load_settings(ClusterSettings))
    assert dialled is not None
    assert dialled.urls == ("http://w1:8081", "http://workers.inference.svc:9000")


@pytest.mark.parametrize("told", [{}, [], {"name": "w"}, {"name": "w", "ready": True, "models": [{"name": "m"}]}])
def test_what_is_no_status_is_told_as_one_of_the_errors_that_a_watch_outlives(told: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        _read("http://w", told)

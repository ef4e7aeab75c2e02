"""What a config service changes reaches the adapter process: served without a restart, and by no half of a change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretStr
from sie_cluster.messages import configs as messages
from sie_cluster.messages.configs import config_pieces, read_config_piece
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar import slices
from sie_cluster.sidecar.run import run_sidecar
from sie_cluster.worker.run import work

from sie_core.contracts import InferenceRequest, Item, LoadWait
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginSet, discover
from sie_core.settings import SettingsError
from tests.catalog.test_export import export_of
from tests.cluster.in_process import BOUND_S, Cluster, registry_of, running


def model(name: str, dim: int) -> str:
    dense = f"tasks: {{encode: {{dense: {{dim: {dim}}}}}}}"
    return f"{{sie_id: test/{name}, package_backed: true, {dense}, profiles: {{default: {{adapter_path: fake}}}}}}"


A, B = model("a", 8), model("b", 8)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running(tmp_path, export_of(A, epoch=1)) as cluster:
        yield cluster


def tell(cluster: Cluster, *texts: str, epoch: int, worker: bool = True) -> str:
    """Have gateway and worker follow other configs; return the hash of the bundle's."""
    registry = registry_of(
        ClusterSettings(), cluster.plugins, export_of(*texts, epoch=epoch), cluster.backend._router.registry
    )
    cluster.backend.follow(registry)
    if worker:
        cluster.sidecar.configs.follow(registry)
    return registry.config_hashes["default"]


def heard(cluster: Cluster, epoch: int, hash_: str) -> bool:
    """Whether the gateway has heard that its worker has these configs."""
    return {(each.report.config_epoch, each.report.config_hash) for each in cluster.workers} == {(epoch, hash_)}


def reached(cluster: Cluster, epoch: int) -> bool:
    """Whether the adapter process has the configs of an epoch."""
    return cluster.sidecar.link.configs.epoch == epoch


async def dims(cluster: Cluster, name: str, **headers: str) -> int | str:
    """The size of an answer's vectors, or the code of its error."""
    body = {"items": [{"text": "a text"}]}
    reply = await cluster.client.post(f"/v1/encode/test/{name}", json=body, headers={"Prefer": "wait=30", **headers})
    if reply.status_code != 200:
        return str(reply.json()["error"]["code"])
    return len(reply.json()["items"][0]["dense"]["values"])


async def test_a_new_model_is_served_a_changed_one_as_it_says_and_a_removed_one_no_more(cluster: Cluster) -> None:
    assert (await dims(cluster, "a"), await dims(cluster, "b")) == (8, "MODEL_NOT_FOUND")
    changes = (
        (2, (A, B), (8, 8)),
        (3, (A, model("b", 16)), (8, 16)),
        (4, (A,), (8, "MODEL_NOT_FOUND")),
    )
    for epoch, texts, served in changes:
        hash_ = tell(cluster, *texts, epoch=epoch)
        # A model that is loaded serves on until its changed config is: that is asked for until it answers.
        async with asyncio.timeout(BOUND_S):
            while (await dims(cluster, "a"), await dims(cluster, "b")) != served:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
        await cluster.until(partial(heard, cluster, epoch, hash_))


async def test_work_for_a_config_that_has_not_come_waits_for_it_and_other_work_does_not(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "CONFIG_S", BOUND_S)
    tell(cluster, A, B, epoch=2, worker=False)
    waiting = asyncio.create_task(dims(cluster, "b"))
    await cluster.until(lambda: cluster.sidecar.in_flight == 1)
    assert await dims(cluster, "a") == 8
    assert cluster.ended("handed_back") == 0
    tell(cluster, A, B, epoch=2)
    assert await waiting == 8


async def test_a_worker_that_never_gets_a_config_gives_its_work_back_and_the_deadline_answers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "CONFIG_S", 0.05)
    tell(cluster, A, B, epoch=2, worker=False)
    assert await dims(cluster, "b", **{"X-SIE-Timeout-Ms": "1500"}) == "DEADLINE_EXCEEDED"
    assert cluster.ended("handed_back") > 1
    assert await dims(cluster, "a") == 8


async def test_a_connection_that_is_made_anew_is_told_all_of_it(cluster: Cluster) -> None:
    tell(cluster, A, B, epoch=2)
    assert await dims(cluster, "b") == 8
    for stream in list(cluster.intake._streams):
        stream.abort()
    await cluster.until(lambda: not cluster.sidecar.link.up)
    hash_ = tell(cluster, B, epoch=3)
    await cluster.until(lambda: cluster.sidecar.link.configs.hash == hash_)
    assert (await dims(cluster, "a"), await dims(cluster, "b")) == ("MODEL_NOT_FOUND", 8)


async def test_models_of_other_bundles_are_not_told(tmp_path: Path) -> None:
    async with running(tmp_path, export_of(A, epoch=1), bundle="gliner") as cluster:
        assert list(cluster.engine.catalog.entries) == []
        assert cluster.engine.catalog.config_epoch == 1


async def test_a_model_to_preload_that_comes_later_is_waited_for_by_nobody_and_loaded_when_it_comes(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, export_of(A, epoch=1), preload_models=("test/b",)) as cluster:
        assert cluster.engine.health().ready_problem is None
        tell(cluster, A, B, epoch=2)
        await cluster.until(lambda: "test/b" in cluster.engine.catalog.entries)
        await cluster.until(lambda: cluster.engine.model("test/b").state == "loaded")
        assert cluster.engine.health().ready_problem is None


async def test_replies_tell_by_which_config_they_were_computed(cluster: Cluster) -> None:
    async def config() -> str | None:
        request = InferenceRequest(
            "test/a", "encode", [Item(text="a text")], request_id="r", load_wait=LoadWait(BOUND_S)
        )
        return (await cluster.engine.infer(request)).config

    first = await config()
    assert first is not None
    for epoch, text, is_equal in ((2, A + "  # told otherwise", True), (3, model("a", 16), False), (4, A, True)):
        tell(cluster, text, epoch=epoch)
        await cluster.until(partial(reached, cluster, epoch))
        async with asyncio.timeout(BOUND_S):
            while (await config() == first) != is_equal:  # noqa: ASYNC110 - it is loaded beside the old, and tells nobody
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("program", [work, run_sidecar])
def test_a_models_folder_beside_a_config_service_stops_the_start_and_names_both(
    program: Callable[[ClusterSettings, PluginSet], None], tmp_path: Path
) -> None:
    both = {"models_dir": tmp_path, "config_service_url": "http://127.0.0.1:1"}
    ports = {"http_port": 0, "worker_metrics_port": 0, "ipc_socket_path": tmp_path / "ipc"}
    settings = ClusterSettings(**both, **ports, nats_url=SecretStr("memory://tests"))
    with pytest.raises(SettingsError, match=r"SIE_MODELS_DIR=.* beside SIE_CONFIG_SERVICE_URL"):
        program(settings, discover(settings, BUILTINS))


async def test_an_epoch_below_the_one_known_is_followed_too(cluster: Cluster) -> None:
    tell(cluster, A, B, epoch=9)
    assert await dims(cluster, "b") == 8
    tell(cluster, A, epoch=3)
    await cluster.until(lambda: cluster.sidecar.link.configs.epoch == 3)
    assert await dims(cluster, "a") == 8


async def test_a_gateway_without_configs_answers_503_and_is_not_ready(cluster: Cluster) -> None:
    cluster.backend._router.known = None
    assert await dims(cluster, "a") == "QUEUE_UNAVAILABLE"
    ready, listed, health = [await cluster.client.get(path) for path in ("/readyz", "/v1/models", "/health")]
    assert (ready.status_code, listed.status_code, health.status_code) == (503, 503, 200)


def test_a_snapshot_travels_in_pieces_that_hold_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PIECE_BYTES", 1000)
    texts = [model(f"m{number}", 8) for number in range(100)]
    registry = registry_of(ClusterSettings(), discover(ClusterSettings(), BUILTINS), export_of(*texts, epoch=5))
    frames = list(config_pieces(5, registry.catalog.configs.values(), ["gone"], whole=True))
    pieces = [read_config_piece(frame) for frame in frames]
    assert len(frames) > 20
    assert max(map(len, frames)) < 1500
    assert [model.text for piece in pieces for model in piece.models] == sorted(texts, key=lambda text: text.split()[1])
    assert [piece.last for piece in pieces] == [False] * (len(frames) - 1) + [True]
    assert pieces[-1].removed == ("gone",)

"""While the config service is away what is known is served; who starts meanwhile takes the kept snapshot, or waits."""

from __future__ import annotations

import asyncio

import pytest
from sie_cluster.configs import polling
from sie_cluster.configs.snapshot import SnapshotKeeper, write_snapshot

from tests.cluster.configs.conftest import connected, following, settings_of
from tests.cluster.configs.registries import text_of
from tests.cluster.configs.service import SmallService

DOWN = "http://127.0.0.1:9"


async def test_with_neither_service_nor_snapshot_there_are_no_configs_and_the_reason_is_told() -> None:
    settings = settings_of(DOWN)
    async with connected(settings) as transport, following(settings, transport) as one:
        await one.until(lambda: "cannot be reached" in (one.follower.ready_problem or ""))
        assert one.follower.registry is None
        assert one.follower.note == one.follower.ready_problem


async def test_who_starts_while_the_service_is_away_takes_the_kept_snapshot_and_says_so(service: SmallService) -> None:
    settings = settings_of(DOWN)
    async with connected(settings) as transport:
        await write_snapshot(transport, service.export())
        async with following(settings, transport) as one:
            await one.until(lambda: one.epoch == 5)
            assert one.told[-1].config_hashes == service.registry.config_hashes
            assert (one.follower.source, one.follower.ready_problem) == ("kept snapshot", None)
            assert "kept snapshot, of epoch 5" in (one.follower.note or "")


async def test_the_kept_snapshot_is_taken_as_soon_as_the_broker_is_reached(
    service: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "AGAIN_S", 3600.0)
    settings = settings_of(DOWN)
    async with connected(settings) as transport, following(settings) as one:
        await write_snapshot(transport, service.export())
        await one.until(lambda: "cannot be reached" in (one.follower.ready_problem or ""))
        await one.follower.hear(transport)
        await one.until(lambda: one.epoch == 5)


async def test_deltas_of_a_service_that_cannot_be_asked_are_applied_upon_the_snapshot(service: SmallService) -> None:
    settings = settings_of(DOWN)
    async with connected(settings) as transport:
        await write_snapshot(transport, service.export())
        async with following(settings, transport) as one:
            await one.until(lambda: one.epoch == 5)
            await service.tell(transport, "org/new", text_of("org/new"))
            await one.until(lambda: one.epoch == 6)


async def test_the_service_that_comes_back_is_followed_with_an_older_store_too(service: SmallService) -> None:
    with service.serving() as url:
        pass
    settings = settings_of(url, worker_config_poll_interval_ms=100)
    async with connected(settings) as transport:
        await write_snapshot(transport, service.export())
        async with following(settings, transport) as one:
            await one.until(lambda: one.epoch == 5)
            service.texts, service.epoch = {"org/older": text_of("org/older")}, 2
            with service.serving():
                await one.until(lambda: one.epoch == 2)
                assert list(one.told[-1].routes) == ["org/older"]
                await one.until(lambda: one.follower.source == "config service" and one.follower.note is None)
            await one.until(lambda: "is not followed" in (one.follower.note or ""))
            assert one.epoch == 2


async def test_a_read_token_that_is_refused_is_named() -> None:
    service = SmallService({})
    service.answers = {"/v1/configs/epoch": (403, b"{}", {})}
    with service.serving() as url:
        async with following(settings_of(url)) as one:
            await one.until(lambda: "SIE_CONFIG_READ_TOKEN" in (one.follower.ready_problem or ""))


@pytest.mark.parametrize(
    "export", [b"[]", b"{", b'{"snapshot_version": 2}', b"[" * 100_000], ids=["a list", "cut", "newer", "deep"]
)
async def test_an_export_that_cannot_be_read_changes_nothing_and_is_told(
    service: SmallService, url: str, export: bytes
) -> None:
    async with following(settings_of(url, worker_config_poll_interval_ms=100)) as one:
        await one.until(lambda: one.epoch == 5)
        service.answers["/v1/configs/export"] = (200, export, {})
        service.change("org/new", text_of("org/new"))
        await one.until(lambda: "export" in (one.follower.note or ""))
        assert one.epoch == 5
        del service.answers["/v1/configs/export"]
        await one.until(lambda: one.epoch == 6)


async def test_the_newest_export_is_kept_for_the_next_start(service: SmallService) -> None:
    settings = settings_of(DOWN)
    async with connected(settings) as transport:
        keeper = SnapshotKeeper(transport, service.export)
        work = asyncio.create_task(keeper.run())
        service.change("org/new", text_of("org/new"))
        await asyncio.to_thread(keeper.changed)
        async with following(settings, transport) as one:
            await one.until(lambda: one.epoch == 6)
        work.cancel()

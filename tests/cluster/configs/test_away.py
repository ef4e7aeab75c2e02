"""While the config service is away what is known is served; who starts meanwhile waits."""

from __future__ import annotations

import pytest

from tests.cluster.configs.conftest import connected, following, settings_of
from tests.cluster.configs.registries import text_of
from tests.cluster.configs.service import TOKEN, SmallService

DOWN = "http://127.0.0.1:9"


async def test_who_starts_while_the_service_is_away_has_no_configs_and_tells_why() -> None:
    settings = settings_of(DOWN)
    async with connected(settings) as transport, following(settings, transport) as one:
        await one.until(lambda: "cannot be reached" in (one.follower.state.ready_problem or ""))
        assert one.follower.state.registry is None
        assert one.follower.state.note == one.follower.state.ready_problem


async def test_the_service_that_comes_back_is_followed_with_an_older_store_too(service: SmallService) -> None:
    with service.serving() as url:
        settings = settings_of(url, worker_config_poll_interval_ms=100)
        async with connected(settings) as transport, following(settings, transport) as one:
            await one.until(lambda: one.epoch == 5)
            service.texts, service.epoch = {"org/older": text_of("org/older")}, 2
            await one.until(lambda: one.epoch == 2)
            assert list(one.told[-1].routes) == ["org/older"]
            assert one.follower.state.note is None


async def test_what_is_known_is_served_while_the_service_is_away(service: SmallService) -> None:
    with service.serving() as url:
        pass
    settings = settings_of(url, worker_config_poll_interval_ms=100)
    async with connected(settings) as transport, following(settings, transport) as one:
        with service.serving():
            await one.until(lambda: one.epoch == 5)
        await one.until(lambda: "is not followed" in (one.follower.state.note or ""))
        await service.tell(transport, "org/new", text_of("org/new"))
        await one.until(lambda: one.epoch == 6)


async def test_of_two_services_the_one_that_lags_is_not_believed_at_once(service: SmallService) -> None:
    behind = SmallService(dict(service.texts))
    with service.serving() as url:
        settings = settings_of(url, worker_config_poll_interval_ms=100)
        async with connected(settings) as transport, following(settings, transport) as one:
            await service.tell(transport, "org/new", text_of("org/new"))
            await one.until(lambda: one.epoch == 6)
            path = "/v1/configs/epoch"
            service.answers[path] = behind.answer(path, f"Bearer {TOKEN}")
            asked = service.asked.count(path)
            await one.until(lambda: service.asked.count(path) > asked)
            del service.answers[path]
            asked = service.asked.count(path)
            await one.until(lambda: service.asked.count(path) > asked + 1)
            assert [each.catalog.config_epoch for each in one.told][-1] == 6
            assert 5 not in [each.catalog.config_epoch for each in one.told][1:]


async def test_a_read_token_that_is_refused_is_named() -> None:
    service = SmallService({})
    service.answers = {"/v1/configs/epoch": (403, b"{}", {})}
    with service.serving() as url:
        async with following(settings_of(url)) as one:
            await one.until(lambda: "SIE_CONFIG_READ_TOKEN" in (one.follower.state.ready_problem or ""))


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
        await one.until(lambda: "export" in (one.follower.state.note or ""))
        assert one.epoch == 5
        del service.answers["/v1/configs/export"]
        await one.until(lambda: one.epoch == 6)

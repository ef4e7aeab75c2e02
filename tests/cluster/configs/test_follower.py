"""A follower holds what the config service holds: by its export, by deltas, and by its epoch where these are missed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sie_bundle.bundles.placement import BundleView

from sie_core.contracts import InferenceError
from tests.cluster.configs.conftest import connected, following, settings_of
from tests.cluster.configs.registries import text_of
from tests.cluster.configs.service import SmallService


async def test_it_boots_from_the_export_with_the_broker_away(service: SmallService, url: str) -> None:
    async with following(settings_of(url)) as one:
        await one.until(lambda: one.epoch == 5)
        registry = one.follower.state.registry
        assert registry is not None
        assert registry.config_hashes == service.registry.config_hashes
        assert registry.resolve("other/b").bundle == "other"
        assert registry.resolve("org/a").compatible == ("default", "other")
        assert (one.follower.state.ready_problem, one.follower.state.note) == (None, None)
        assert one.follower.state.sources == {"org/a": "api", "other/b": "api"}


async def test_changes_are_followed_by_their_deltas_alone(service: SmallService, url: str) -> None:
    settings = settings_of(url)
    async with connected(settings) as transport, following(settings, transport) as one:
        await one.until(lambda: one.epoch == 5)
        first = one.told[-1]
        await service.tell(transport, "org/new", text_of("org/new"))
        await service.tell(transport, "org/a", text_of("org/a", pool="h100"))
        await service.tell(transport, "org/new", None)
        await one.until(lambda: one.epoch == 8)
        registry = one.told[-1]
        assert registry.config_hashes == service.registry.config_hashes
        assert registry.pool_config_hashes == service.registry.pool_config_hashes
        assert registry.resolve("org/a").pool == "h100"
        assert registry.epochs == {"org/a": 7}
        with pytest.raises(InferenceError, match="org/new"):
            registry.resolve("org/new")
        assert [each.catalog.config_epoch for each in one.told] == [5, 6, 7, 8]
        assert registry.catalog.configs["other/b"] is first.catalog.configs["other/b"]
        assert (service.exports, one.count("deltas", "applied")) == (1, 3)


async def test_changes_whose_deltas_are_lost_are_followed_by_the_poll(service: SmallService, url: str) -> None:
    settings = settings_of(url, worker_config_poll_interval_ms=100)
    async with following(settings) as one:
        await one.until(lambda: one.epoch == 5)
        service.change("org/new", text_of("org/new"))
        service.change("org/a", None)
        await one.until(lambda: one.epoch == 7)
        assert list(one.told[-1].routes) == ["org/new", "other/b"]


async def test_a_gap_between_deltas_has_the_export_fetched(service: SmallService, url: str) -> None:
    settings = settings_of(url)
    async with connected(settings) as transport, following(settings, transport) as one:
        await one.until(lambda: one.epoch == 5)
        service.change("org/lost", text_of("org/lost"))
        await service.tell(transport, "org/new", text_of("org/new"))
        await one.until(lambda: one.epoch == 7)
        assert {"org/lost", "org/new"} <= one.told[-1].routes.keys()
        assert (one.count("deltas", "gap"), service.exports) == (1, 2)


async def test_a_restored_older_store_is_followed_down(service: SmallService, url: str) -> None:
    settings = settings_of(url, worker_config_poll_interval_ms=100)
    async with connected(settings) as transport, following(settings, transport) as one:
        await one.until(lambda: one.epoch == 5)
        service.texts, service.epoch = {"org/older": text_of("org/older")}, 2
        await one.until(lambda: one.epoch == 2)
        assert list(one.told[-1].routes) == ["org/older"]
        await service.tell(transport, "org/next", text_of("org/next"))
        await one.until(lambda: one.epoch == 3)


async def test_changed_bundles_are_followed_at_the_same_epoch(service: SmallService, url: str) -> None:
    async with following(settings_of(url, worker_config_poll_interval_ms=100)) as one:
        await one.until(lambda: one.epoch == 5)
        service.bundles = [replace(service.bundles[0], priority=30), service.bundles[1], BundleView("third", 40)]
        await one.until(lambda: list(one.told[-1].bundles) == ["other", "default", "third"])
        assert one.told[-1].resolve("org/a").bundle == "other"


async def test_a_config_that_a_delta_leaves_out_is_taken_from_the_export(service: SmallService, url: str) -> None:
    settings = settings_of(url)
    async with connected(settings) as transport, following(settings, transport) as one:
        await one.until(lambda: one.epoch == 5)
        await service.tell(transport, "org/large", text_of("org/large", license="x" * 200_000))
        await one.until(lambda: one.epoch == 6)
        assert "org/large" in one.told[-1].routes
        assert one.count("deltas", "without_config") == 1


async def test_a_model_filter_holds_for_deltas_and_the_hashes_count_all_models(service: SmallService, url: str) -> None:
    settings = settings_of(url, model_filter=("org/a", "org/later"))
    async with connected(settings) as transport, following(settings, transport) as one:
        await one.until(lambda: one.epoch == 5)
        await service.tell(transport, "org/later", text_of("org/later"))
        await service.tell(transport, "org/unasked", text_of("org/unasked"))
        await one.until(lambda: one.epoch == 7)
        assert list(one.told[-1].routes) == ["org/a", "org/later"]
        assert one.told[-1].config_hashes == service.registry.config_hashes
        assert service.exports == 1


async def test_an_export_is_fetched_every_so_often_although_the_epoch_is_the_same(
    service: SmallService, url: str
) -> None:
    settings = settings_of(url, worker_config_poll_interval_ms=100, worker_config_full_export_interval_ms=100)
    async with following(settings) as one:
        await one.until(lambda: service.exports >= 3)
        assert one.epoch == 5

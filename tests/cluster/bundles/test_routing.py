"""Where a gateway sends a request: to the bundle and the pool of its model; and who pulls it there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from sie_bundle.bundles.placement import BundleView
from sie_bundle.bundles.registry import Registry, make_registry, registry_of_one_bundle
from sie_cluster.gateway.capacity.profiles import Profiles
from sie_cluster.gateway.routing import Router
from sie_cluster.queue.subjects import needed_subject, waiting_subject, work_queue, work_subject
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.queue.pulling import Pulls
from sie_fake.broker.queue import in_process_transports

from sie_core.catalog.configs.reading import config_of
from sie_core.catalog.configs.snapshot import make_catalog
from sie_core.contracts import Delivery, InferenceError, Work
from tests.cluster.sidecar.placed import pulls_alone

BOUND_S = 30.0
SERVED = {"org/a": ("default", "gliner"), "org/a:big": ("gliner",), "org/pooled": ("default",)}
TEXTS = (
    "{sie_id: org/a, hf_id: org/a, profiles: {default: {}, big: {max_batch_tokens: 9}}}",
    "{sie_id: org/pooled, hf_id: org/b, pool: l4}",
)


def registry(config_epoch: int | None = 7) -> Registry:
    catalog = make_catalog(1, [config_of(text.encode(), source="test", folder=Path()) for text in TEXTS])
    bundles = [BundleView("default", 100), BundleView("gliner", 110)]
    followed = replace(catalog, config_epoch=config_epoch)
    return make_registry(followed, bundles, lambda model: SERVED[model.id], {"org/a": 7})


@pytest.mark.parametrize(
    ("name", "subject", "pool", "epoch"),
    [
        ("org/a", "sie.work._default.default.any.default.org__a.0", "_default", 7),
        ("org/a:default", "sie.work._default.default.any.default.org__a.0", "_default", 7),
        ("gliner:/org/a", "sie.work._default.default.any.gliner.org__a.0", "_default", 7),
        ("org/a:big", "sie.work._default.default.any.gliner.org__a:big.0", "_default", 7),
        ("org/pooled", "sie.work.l4.default.any.default.org__pooled.0", "l4", 0),
    ],
)
def test_a_request_goes_to_the_bundle_and_the_pool_of_its_model(name: str, subject: str, pool: str, epoch: int) -> None:
    to = Router("_default", registry()).route(name)
    assert (to.subject, to.pool, to.config_epoch) == (subject, pool, epoch)


@pytest.mark.parametrize(
    ("asked", "found"), [("l4", "l4-spot"), ("l4-spot", "l4-spot"), ("h100", "h100"), ("h100-spot", "h100-spot")]
)
def test_a_profile_is_asked_itself_or_its_spot_machines_where_only_they_are_known(asked: str, found: str) -> None:
    profiles = Profiles(("l4-spot", "h100", "h100-spot"))
    to = Router("_default", registry(), profiles).route("org/a", profile=asked, resource_pool="mine")
    assert (to.profile, to.subject) == (found, f"sie.work._default.mine.{found}.default.org__a.0")


def test_the_profile_of_a_living_worker_may_be_asked_for() -> None:
    alive = {"any", "t4"}
    assert Profiles(("l4",), lambda: alive).find("t4") == "t4"
    alive.clear()
    with pytest.raises(InferenceError):
        Profiles(("l4",), lambda: alive).find("t4")


@pytest.mark.parametrize("asked", ["h200", "l4-spot", "spot"])
def test_a_profile_that_nobody_knows_is_refused_by_the_names_of_those_there_are(asked: str) -> None:
    with pytest.raises(InferenceError) as refusal:
        Profiles(("l4", "h100"), lambda: {"any", "t4"}).find(asked)
    assert (refusal.value.code, refusal.value.param) == ("INVALID_INPUT", "X-SIE-MACHINE-PROFILE")
    assert refusal.value.details["known_profiles"] == ["h100", "l4", "t4"]
    assert "h100, l4, t4" in refusal.value.message


def test_models_of_the_default_pool_go_to_the_gateways_own() -> None:
    assert Router("tests", registry()).route("org/a").pool == "tests"


def test_without_a_config_service_all_goes_to_one_bundle_and_another_is_refused() -> None:
    router = Router("tests", registry_of_one_bundle(registry(None).catalog, "mine", "tests"))
    assert router.route("org/pooled").subject == "sie.work.tests.default.any.mine.org__pooled.0"
    assert router.route("mine:/org/a").config_epoch is None
    with pytest.raises(InferenceError) as conflict:
        router.route("gliner:/org/a")
    assert conflict.value.code == "BUNDLE_CONFLICT"
    assert conflict.value.details == {"compatible_bundles": ["mine"]}


def test_before_the_first_registry_nothing_is_unknown_but_everything() -> None:
    with pytest.raises(InferenceError) as away:
        Router("_default").route("org/a")
    assert (away.value.code, away.value.retry_after_s) == ("QUEUE_UNAVAILABLE", 5.0)


async def test_a_sidecar_pulls_the_work_of_its_own_bundle_alone_also_when_it_starts_behind_it() -> None:
    (factory,) = in_process_transports()
    transport = factory.create("memory://bundles", {})
    await transport.open()
    await transport.declare_queue(work_queue("_default"))
    came: dict[str, asyncio.Queue[str]] = {"default": asyncio.Queue(), "gliner": asyncio.Queue()}
    subjects = {bundle: work_subject("org/a", "_default", bundle) for bundle in came}

    def take(bundle: str) -> Pulls:
        def delivered(delivery: Delivery, _: object) -> None:
            delivery.ack()
            came[bundle].put_nowait(bytes(delivery.payload).decode())

        return pulls_alone(transport, ClusterSettings(bundle=bundle), delivered)

    for number, bundle in enumerate(came):
        await transport.publish(Work(subjects[bundle], str(number), f"waits {number}".encode()), lambda _: None)
    pulls = {bundle: take(bundle) for bundle in came}
    looking = [asyncio.create_task(each.look()) for each in pulls.values()]
    async with asyncio.timeout(BOUND_S):
        for each in pulls.values():
            await each.open()
            each.take()
        for subject in subjects.values():  # as gateways tell of work that waits
            await transport.send(waiting_subject("_default"), subject.encode())
        assert (await came["default"].get(), await came["gliner"].get()) == ("waits 0", "waits 1")
        for subject in subjects.values():
            await transport.send(needed_subject("_default"), subject.encode())
        await transport.publish(Work(subjects["gliner"], "2", b"later"), lambda _: None)
        assert await came["gliner"].get() == "later"
        for each in pulls.values():
            await each.settled()
    assert [list(each._pulls) for each in pulls.values()] == [[subjects["default"]], [subjects["gliner"]]]
    for task in looking:
        task.cancel()
    await transport.close()

"""The way to the broker: chosen by its URL's scheme, and its secrets are told to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pydantic import SecretStr
from sie_cluster.gateway.flights import dispatcher
from sie_cluster.gateway.flights.dispatcher import UNSTORED_S, Dispatcher
from sie_cluster.gateway.metrics import GatewayMetrics
from sie_cluster.queue import broker
from sie_cluster.queue.broker import declare_queues, ensure_queue, transport_maker
from sie_cluster.queue.subjects import work_queue
from sie_cluster.settings import ClusterSettings
from sie_fake.broker.queue import in_process_transports

from sie_core.contracts import InferenceError, PluginError, QueueError, QueueFailure, QueueSettings, QueueTransport
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import SettingsError

SECRET = "hunter2"


def test_without_a_url_the_variable_is_named() -> None:
    with pytest.raises(SettingsError, match="SIE_NATS_URL is not set"):
        transport_maker(ClusterSettings(), discover(ClusterSettings(), BUILTINS))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"pigeon://me:{SECRET}@coop", "no installed plugin serves pigeon://"),
        (f"nats://me:{SECRET}@", "is no URL like nats://host:4222"),
    ],
)
def test_a_url_that_cannot_be_used_is_told_without_its_password(url: str, told: str) -> None:
    settings = ClusterSettings(nats_url=SecretStr(url))
    with pytest.raises(PluginError, match=told) as refused:
        transport_maker(settings, discover(settings, BUILTINS))
    assert SECRET not in str(refused.value)


def test_settings_show_no_secret_and_give_the_transport_what_is_set() -> None:
    settings = ClusterSettings(
        nats_url=SecretStr(f"nats://me:{SECRET}@host"), nats_user="me", nats_password=SecretStr(SECRET)
    )
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings.model_dump())
    assert settings.queue_options() == {"user": "me", "password": SECRET, "storage": "file", "replicas": "1"}


QUEUE = work_queue("_default")


def refusing(make: Callable[[], QueueTransport], failures: list[QueueFailure]) -> tuple[QueueTransport, list[str]]:
    """A connection on which queues are made once these failures are told; and the queues that were asked for."""
    transport, asked = make(), list[str]()
    declare = transport.declare_queue

    async def refused(settings: QueueSettings, *, change: bool = True) -> None:
        asked.append(settings.name)
        if failures:
            raise QueueError(failures.pop(0), "not now")
        await declare(settings, change=change)

    transport.declare_queue = refused  # type: ignore[method-assign]
    return transport, asked


def connections() -> Callable[[], QueueTransport]:
    (factory,) = in_process_transports()
    return lambda: factory.create("memory://queues", {})


async def test_queues_are_made_once_the_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "AGAIN_S", 0.0)
    transport, asked = refusing(connections(), ["UNAVAILABLE", "UNAVAILABLE"])
    await asyncio.wait_for(declare_queues(lambda: transport, (QUEUE,)), 30)
    assert asked == [QUEUE.name] * 3
    transport, _ = refusing(connections(), ["DENIED"])
    with pytest.raises(QueueError, match="not now"):
        await declare_queues(lambda: transport, (QUEUE,))


async def test_a_gateway_without_a_queue_says_that_the_broker_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "AGAIN_S", 0.0)
    make = connections()
    transport, asked = refusing(make, ["DENIED"])
    gateway = Dispatcher(lambda: transport, ClusterSettings(), GatewayMetrics())
    assert gateway.problem == "the broker was not reached yet"
    opening = asyncio.create_task(gateway.open())
    async with asyncio.timeout(30):
        while not asked:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        assert gateway.problem == "the broker has no queue sie-work-_default yet; the log says why it is not made"
        await declare_queues(make, (QUEUE,))
        await opening
    assert gateway.problem is None
    await gateway.close()


async def test_a_pools_queue_that_was_not_made_is_tried_again_with_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatcher, "POOL_WAIT_S", 0.0)
    failures = list[QueueFailure]()
    transport, _ = refusing(connections(), failures)
    gateway = Dispatcher(lambda: transport, ClusterSettings(), GatewayMetrics())
    await gateway.open()
    failures.append("CONFIG")
    with pytest.raises(InferenceError, match="retry shortly"):
        await gateway._wait_for_pool("gpu", 60)  # nobody waits for what fails behind it
    await asyncio.sleep(0)
    monkeypatch.setattr(dispatcher, "POOL_WAIT_S", 30.0)
    await gateway._wait_for_pool("gpu", 60)
    await gateway.close()


async def test_a_broker_stores_nothing_once_two_slices_apart_were_not_stored_and_none_between() -> None:
    make = connections()
    await declare_queues(make, (QUEUE,))
    gateway = Dispatcher(make, ClusterSettings(), GatewayMetrics())
    await gateway.open()
    lost = QueueError("UNAVAILABLE", "memory: did not say that it stored it.")

    def fail_twice(between: int | QueueError | None = None) -> str | None:
        gateway._judge_broker(lost)
        assert gateway.note is None
        gateway._unstored_since -= UNSTORED_S
        if between is not None:
            gateway._judge_broker(between)
        gateway._judge_broker(lost)
        return gateway.note

    for answer in (1, QueueError("FULL", "no more")):
        assert fail_twice(between=answer) is None
        gateway._judge_broker(1)
    told = str(fail_twice(between=QueueError("NOT_FOUND", "no leader")))
    assert told.startswith(f"the broker stores no work: {lost}")
    gateway._judge_broker(2)
    assert gateway.note is None
    await gateway.close()


async def test_who_may_not_make_a_queue_asks_for_that_once_and_waits_until_it_is_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broker, "AGAIN_S", 0.0)
    make = connections()
    transport, asked = refusing(make, ["UNAVAILABLE", *(["DENIED"] * 9)])
    await transport.open()
    waiting = asyncio.create_task(ensure_queue(transport, QUEUE))
    async with asyncio.timeout(30):
        while "sie cluster queues" not in caplog.text or len(asked) < 2:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        await declare_queues(make, (QUEUE,))
        await waiting
    assert len(asked) == 2

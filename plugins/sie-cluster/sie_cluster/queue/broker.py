"""The way to the queue: the transport of `SIE_NATS_URL`, opened however long the broker is away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from sie_cluster.settings import ClusterSettings
from sie_core.contracts import ConnectionState, PluginError, QueueError, QueueSettings, QueueTransport
from sie_core.plugins import PluginSet, UnfitObject, require
from sie_core.plugins.object_stores import url_scheme
from sie_core.settings import SettingsError

AGAIN_S = 1.0
"""Between attempts, and between looks for a queue that is not there yet."""

log = logging.getLogger(__name__)

ELECTION_S = 10.0
"""Brokers that start together elect a leader within it: that they cannot make a queue before is no news."""

Make = Callable[[], QueueTransport]
T = TypeVar("T")


def transport_maker(settings: ClusterSettings, plugins: PluginSet) -> Make:
    """Find who makes transports of the broker's URL; connects to nothing.

    Raises:
        SettingsError: There is no URL.
        PluginError: No plugin serves its scheme, or the settings cannot be used. No message holds the URL, which may
            hold a password.
    """
    if settings.nats_url is None:
        served = ", ".join(f"{each}://…" for each in sorted(plugins.queue_transports)) or "none"
        raise SettingsError(f"SIE_NATS_URL is not set: the broker's URL; installed plugins serve: {served}.")
    url = settings.nats_url.get_secret_value()
    scheme = url_scheme(url)
    factory = plugins.queue_transports.get(scheme)
    if factory is None:
        served = ", ".join(f"{each}://" for each in sorted(plugins.queue_transports)) or "none"
        raise PluginError(
            f"SIE_NATS_URL: no installed plugin serves {scheme}://; served are: {served}. Install one that registers a "
            "queue transport for it."
        )
    options = settings.queue_options()

    def make() -> QueueTransport:
        try:
            transport = factory.create(url, options)
            require(transport, QueueTransport)
        except UnfitObject as error:
            raise PluginError(
                f"SIE_NATS_URL: the transport of {scheme}:// does not fit this sie-core: {error}"
            ) from error
        except (ValueError, ImportError) as error:
            raise PluginError(f"SIE_NATS_URL cannot be used: {error}") from error
        return transport

    make()
    return make


async def open_transport(make: Make, on_state: Callable[[ConnectionState], None]) -> QueueTransport:
    """Open a transport, trying for as long as the broker is away.

    Raises:
        QueueError: `DENIED`: the broker refuses this user.
    """

    async def opened() -> QueueTransport:
        transport = make()
        await transport.open(on_state)
        return transport

    return await _until_done("the broker is not reached yet", opened)


async def declare_queues(make: Make, queues: Sequence[QueueSettings], stores: Sequence[str] = ()) -> None:
    """Make queues and key-value stores, or change them to what is wanted, however long the broker is away.

    Raises:
        QueueError: `DENIED`: this user may not. `CONFIG`: what differs cannot be changed.
    """
    transport = await open_transport(make, lambda _: None)
    try:
        for queue in queues:
            declare = partial(transport.declare_queue, queue)
            await _until_done(f"the queue {queue.name} is not made yet", declare, ELECTION_S)
        for store in stores:
            await _until_done(f"the store {store} is not made yet", partial(transport.key_value, store), ELECTION_S)
    finally:
        await transport.close()


async def _until_done(what: str, do: Callable[[], Awaitable[T]], quiet_s: float = 0.0) -> T:
    """Do something as soon as the broker can; the log is told why it cannot, once it could not for `quiet_s`."""
    told, began = "", time.monotonic()
    while True:
        try:
            return await do()
        except QueueError as error:
            if error.failure != "UNAVAILABLE":
                raise
            if str(error) != told and time.monotonic() - began >= quiet_s:
                told = str(error)
                log.warning("%s, and tried again: %s", what, told)
        await asyncio.sleep(AGAIN_S)


async def ensure_queue(transport: QueueTransport, queue: QueueSettings) -> None:
    """Make a queue where there is none; where this user may not, wait until it is there.

    A queue that is there stays as it is: the config service and `sie cluster queues` change queues, so that no process
    with other settings shrinks one.
    """
    may_make, level = True, logging.WARNING
    while True:
        try:
            if may_make:
                await transport.declare_queue(queue, change=False)
            else:
                await transport.backlog(queue.name, queue.subjects[0])
            return
        except QueueError as error:
            if error.failure == "DENIED" and may_make:
                may_make = False
                continue
            if error.failure not in ("UNAVAILABLE", "NOT_FOUND"):
                raise
            log.log(
                level, "the queue %s is not there yet (%s); where this user may not make it, `sie cluster queues` does",
                queue.name, error,
            )  # fmt: skip
            level = logging.DEBUG
        await asyncio.sleep(AGAIN_S)

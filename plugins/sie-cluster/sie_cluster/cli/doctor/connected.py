"""The checks of what is reached with the settings of this process alone: the broker, and the store of payloads."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final

from sie_cluster.cli.doctor.findings import Finding, ok, wrong
from sie_cluster.queue.access import STORES, queues
from sie_cluster.queue.broker import transport_maker
from sie_cluster.settings import ClusterSettings
from sie_core.contracts import ObjectStoreError, QueueError
from sie_core.plugins import PluginSet
from sie_core.plugins.object_stores import open_store_or_folder

KEY: Final = "sie-doctor"
ANSWER_S: Final = 20.0
MAKES: Final = "`sie cluster queues` makes them, as the config service's user; a config service does so at its start."


def broker(settings: ClusterSettings, plugins: PluginSet, pools: Sequence[str]) -> list[Finding]:
    """Check that the broker takes this user, and has the queues of pools and the stores."""
    return asyncio.run(_broker(settings, plugins, pools))


async def _broker(settings: ClusterSettings, plugins: PluginSet, pools: Sequence[str]) -> list[Finding]:
    transport = transport_maker(settings, plugins)()
    try:
        async with asyncio.timeout(ANSWER_S):
            await transport.open()
    except (QueueError, TimeoutError) as error:
        remedy = "Correct SIE_NATS_URL, SIE_NATS_USER or SIE_NATS_PASSWORD, or start the broker."
        return [wrong("broker", str(error) or f"it gave no answer in {ANSWER_S:g} s", remedy)]
    found = [ok("broker", "takes this user")]
    looks: dict[str, Coroutine[Any, Any, object]]
    looks = {f"queue {each.name}": transport.backlog(each.name, each.subjects[0]) for each in queues(pools)}
    looks |= {f"store {name}": transport.key_value(name, make=False) for name in STORES}
    try:
        for subject, look in looks.items():
            try:
                async with asyncio.timeout(ANSWER_S):
                    held = await look
                told = f"holds {sum(held.values())} messages" if isinstance(held, dict) else "is there"
                found.append(ok(subject, told))
            except (QueueError, TimeoutError) as error:
                if isinstance(error, QueueError) and error.failure == "DENIED":
                    found.append(Finding("skipped", subject, "this user may not look at it"))
                elif subject.startswith("store ") and isinstance(error, QueueError) and error.failure == "NOT_FOUND":
                    remedy = "A gateway makes it when it needs it."
                    found.append(Finding("note", subject, "is not there yet", remedy))
                else:
                    found.append(wrong(subject, str(error) or f"no answer in {ANSWER_S:g} s", MAKES))
    finally:
        await transport.close()
    return found


def payload_store(settings: ClusterSettings, plugins: PluginSet) -> Iterator[Finding]:
    """Check that the store of payloads can be written, read and deleted from."""
    url = str(settings.payload_store_url)
    store = open_store_or_folder("SIE_PAYLOAD_STORE_URL", url, plugins.object_stores, durable=False)
    try:
        store.write(KEY, b"sie doctor")
        store.read(KEY)
        store.delete(KEY)
        yield ok("payload store", f"{store.url} is written, read and deleted from")
    except (ObjectStoreError, OSError) as error:
        remedy = "Gateways and workers need the rights to write, read and delete there."
        yield wrong("payload store", str(error), remedy)

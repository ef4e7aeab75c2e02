"""The payload store: a folder or a bucket that gateways and sidecars share, one object a payload."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

from sie_cluster.messages.frames import Pieces, size_of
from sie_cluster.queue.payloads.offers import KEY
from sie_cluster.queue.subjects import MOST_AGE_S
from sie_cluster.settings import ClusterSettings
from sie_core.concurrency.pacing import PACING
from sie_core.contracts import ObjectStore, ObjectStoreError, QueueError
from sie_core.plugins import PluginSet
from sie_core.plugins.object_stores import open_store_or_folder

FOLDER = "payloads"
AT_ONCE = 4
"""Payloads written or read at a time."""
ANSWER_S = 30.0
"""How long the store may take for one."""
SWEEP_S = 300.0
LEFTOVER_S = MOST_AGE_S + 60.0
"""What was there for so long is nobody's: no request takes longer."""

log = logging.getLogger(__name__)
T = TypeVar("T")


class PayloadStore:
    """Payloads by key. What the objects' methods block for passes on threads.

    The threads are its own: a store that never answers keeps them, and others need theirs, such as the resolver of
    names when a connection to the broker is made again.

    Args:
        objects: Where they lie, each under a random key that is written once.
        answer_s: How long it may take for one.
    """

    def __init__(self, objects: ObjectStore, answer_s: float = ANSWER_S) -> None:
        self._objects, self._answer_s = objects, answer_s
        self._threads = ThreadPoolExecutor(AT_ONCE, "sie-payloads")
        self._seen: dict[str, float] = {}

    async def write(self, key: str, payload: Pieces) -> None:
        """Store a payload.

        Raises:
            QueueError: `UNAVAILABLE`.
        """
        await PACING.turn(size_of(payload))
        await self._run(lambda: self._objects.write(_object(key), _joined(payload)))

    async def read(self, key: str, size: int) -> bytes:
        """Return a payload of so many bytes.

        Raises:
            QueueError: `NOT_FOUND`, also where it has another size; `UNAVAILABLE`.
        """

        def read() -> bytes:
            there = self._objects.size(_object(key))
            if there != size:
                raise QueueError("NOT_FOUND", f"The payload store has no payload of {size} bytes at this key.")
            return self._objects.read(_object(key))

        await PACING.turn(size)
        return await self._run(read)

    async def remove(self, key: str) -> None:
        """Remove a payload; where that fails it is left to `sweep`."""
        try:
            await self._run(lambda: self._objects.delete(_object(key)))
        except QueueError as error:
            log.warning("a payload could not be removed, it is swept later: %s", error)

    async def keep_clean(self, every_s: float = SWEEP_S, leftover_s: float = LEFTOVER_S) -> None:
        """Remove what processes that ended have left, again and again until cancelled."""
        while True:
            try:
                await self.sweep(leftover_s)
            except QueueError as error:
                log.warning("payloads that were left could not be swept: %s", error)
            await asyncio.sleep(every_s)

    async def sweep(self, leftover_s: float) -> int:
        """Remove the payloads that this process has seen for so long; return how many.

        The clock is this process's own: that of the store, or of who wrote, may differ.

        Raises:
            QueueError: `UNAVAILABLE`.
        """
        there = await self._run(lambda: [each.key for each in self._objects.list(FOLDER)])
        now = time.monotonic()
        self._seen = {key: self._seen.get(key, now) for key in there if _is_payload(key)}
        old = [key for key, since in self._seen.items() if now - since >= leftover_s]
        for key in old:
            await self._run(lambda key=key: self._objects.delete(key))  # type: ignore[misc]
        if old:
            log.info("%d payloads were left in the store and are removed", len(old))
        return len(old)

    async def _run(self, blocks: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._answer_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, blocks)
        except TimeoutError:
            told = f"The payload store {self._objects.url} did not answer within {self._answer_s:g} s."
            raise QueueError("UNAVAILABLE", told) from None
        except ObjectStoreError as error:
            failure = "NOT_FOUND" if error.failure == "NOT_FOUND" else "UNAVAILABLE"
            raise QueueError(failure, f"The payload store: {error}") from None  # type: ignore[arg-type]


def open_payload_store(settings: ClusterSettings, plugins: PluginSet) -> PayloadStore | None:
    """Open the store of `SIE_PAYLOAD_STORE_URL`, None where there is none; asks nothing of it.

    Raises:
        PluginError: No plugin serves its scheme, or it cannot be used.
    """
    url = settings.payload_store_url
    if url is None:
        return None
    return PayloadStore(open_store_or_folder("SIE_PAYLOAD_STORE_URL", url, plugins.object_stores, durable=False))


def _joined(payload: Pieces) -> bytes:
    """Join the pieces of a payload; one alone may be a view of megabytes, which is written as bytes are."""
    return cast("bytes", payload[0]) if len(payload) == 1 else b"".join(payload)


def _object(key: str) -> str:
    return f"{FOLDER}/{key}"


def _is_payload(key: str) -> bool:
    folder, _, name = key.rpartition("/")
    return folder == FOLDER and bool(KEY.fullmatch(name))

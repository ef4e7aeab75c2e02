"""The last export, kept in the transport's key-value store for who starts while the config service is away.

The config service alone writes it. It lies in parts, which fit into messages, beside the one before; the head that
names them, with their hash, is written last, so that a reader finds a whole one or none.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
import zlib
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sie_cluster.configs.client import MOST_EXPORT_BYTES
from sie_cluster.queue.subjects import SNAPSHOTS
from sie_core.concurrency.loop import call_soon
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import InferenceError, QueueError, QueueTransport

HEAD = "snapshot"
PART_BYTES = 512 * 1024
MOST_PARTS = 1_000
AGAIN_S = 2.0
"""Between two snapshots, and between attempts where the store is away."""
SHARE = 10
"""Writing takes at most about this fraction of the time."""

log = logging.getLogger(__name__)


class _Head(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    name: Annotated[str, Field(pattern=r"^[0-9a-z]{1,32}-[01]$")]
    """Of the parts: their writer's, and one of the two places it has for them."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Of what the parts hold."""
    parts: Annotated[int, Field(ge=0, le=MOST_PARTS)]


async def write_snapshot(transport: QueueTransport, export: bytes, writer: str = "one") -> None:
    """Keep an export in place of the one before.

    Args:
        transport: Open.
        export: As JSON.
        writer: A name that no other process writes under; letters and digits.

    Raises:
        QueueError: The store is away, or another process wrote at the same time.
    """
    store = await transport.key_value(SNAPSHOTS)
    packed = await on_thread("sie-snapshot", lambda: zlib.compress(export, 1))
    sha256, entry = hashlib.sha256(packed).hexdigest(), await store.get(HEAD)
    before = None if entry is None else _head(entry.value)
    if before is not None and before.sha256 == sha256:
        return
    place = "1" if before is not None and before.name == f"{writer}-0" else "0"
    head = _Head(name=f"{writer}-{place}", sha256=sha256, parts=-(-len(packed) // PART_BYTES))
    for index, key in enumerate(_keys(head)):
        await store.put(key, packed[index * PART_BYTES : (index + 1) * PART_BYTES])
    await store.compare_and_set(HEAD, head.model_dump_json().encode(), None if entry is None else entry.revision)
    if before is not None and not before.name.startswith(f"{writer}-"):
        for key in _keys(before):
            await store.delete(key)


async def read_snapshot(transport: QueueTransport) -> bytes | None:
    """Return the export that is kept; None where there is none, or none that is whole.

    Raises:
        QueueError: The store is away.
    """
    try:
        store = await transport.key_value(SNAPSHOTS, make=False)
    except QueueError as error:
        if error.failure == "NOT_FOUND":
            return None
        raise
    for _ in range(2):  # another may be written while the parts of one are read
        entry = await store.get(HEAD)
        head = None if entry is None else _head(entry.value)
        if head is None:
            return None
        parts = [await store.get(key) for key in _keys(head)]
        packed = b"".join(part.value for part in parts if part is not None)
        if hashlib.sha256(packed).hexdigest() == head.sha256:
            return await on_thread("sie-snapshot", lambda packed=packed: _unpacked(packed))  # type: ignore[misc]
    return None


class SnapshotKeeper:
    """Keeps the newest export of a config service.

    Args:
        transport: Open.
        export: Gives the export; raises `InferenceError` while there is none to give. Called on a thread.
    """

    def __init__(self, transport: QueueTransport, export: Callable[[], bytes]) -> None:
        self._transport, self._export, self._writer = transport, export, secrets.token_hex(4)
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def changed(self) -> None:
        """Have the export written soon. Called from any thread."""
        call_soon(self._loop, self._changed.set)

    async def run(self) -> None:
        """Write whenever there was a change, until cancelled."""
        told = False
        while True:
            await self._changed.wait()
            self._changed.clear()
            began = time.monotonic()
            try:
                export = await on_thread("sie-snapshot", self._export)
                await write_snapshot(self._transport, export, self._writer)
                told = False
            except InferenceError:  # another service leads, and keeps its own
                continue
            except QueueError as error:
                self._changed.set()
                if not told:
                    log.warning("the snapshot of the model configs is not kept, and is tried again: %s", error)
                told = True
            await asyncio.sleep(max(AGAIN_S, SHARE * (time.monotonic() - began)))


def _head(value: bytes) -> _Head | None:
    try:
        return _Head.model_validate_json(value)
    except ValidationError:
        return None


def _keys(head: _Head) -> list[str]:
    return [f"part.{head.name}.{index}" for index in range(head.parts)]


def _unpacked(packed: bytes) -> bytes | None:
    unpacker = zlib.decompressobj()
    try:
        export = unpacker.decompress(packed, MOST_EXPORT_BYTES)
    except zlib.error:
        return None
    return export if unpacker.eof else None

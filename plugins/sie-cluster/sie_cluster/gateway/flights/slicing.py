"""Cuts a request into slices, each of which travels as one message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sie_cluster.gateway.routing import Destination
from sie_cluster.messages.frames import LARGE_BYTES
from sie_cluster.messages.requests import media_bytes, pack_large_items, pack_small_items
from sie_cluster.messages.work import MOST_ITEMS, WorkOperation
from sie_core.contracts import Item


class Packed(NamedTuple):
    """A request as bytes; see `sie_cluster.messages.requests`."""

    to: Destination
    operation: WorkOperation
    request_id: str
    shared: bytes
    items: Sequence[bytes]
    query: bytes = b""
    client: str | None = None
    priority: str | None = None


async def pack_items(items: Sequence[Item]) -> list[bytes]:
    """Pack items; those with large media on a thread, as a copy of megabytes holds everybody else up."""
    if sum(map(media_bytes, items)) < LARGE_BYTES:
        return pack_small_items(items)
    return await asyncio.to_thread(pack_large_items, items)


def cut(items: Sequence[bytes], most_bytes: int) -> Iterator[range]:
    """Yield the ranges of items that travel together: up to 32, and up to so many bytes unless one alone has more."""
    start = size = 0
    for place, item in enumerate(items):
        if place > start and (place - start >= MOST_ITEMS or size + len(item) > most_bytes):
            yield range(start, place)
            start, size = place, 0
        size += len(item)
    yield range(start, len(items))

"""What is read of the transport's store is a whole snapshot, or none."""

from __future__ import annotations

import asyncio
import random

import pytest
from sie_cluster.configs.snapshot import HEAD, PART_BYTES, read_snapshot, write_snapshot
from sie_cluster.queue.subjects import SNAPSHOTS

from sie_core.contracts import KeyValue, QueueError, QueueTransport

LARGE = random.Random(1).randbytes(3 * PART_BYTES)


async def values(store: KeyValue) -> dict[str, bytes]:
    """What lies there of the parts of two writers."""
    keys = [f"part.{writer}-{place}.{index}" for writer in ("one", "a", "b") for place in "01" for index in range(5)]
    found = [await store.get(key) for key in keys]
    return {entry.key: entry.value for entry in found if entry is not None}


@pytest.fixture
async def store(transport: QueueTransport) -> KeyValue:
    return await transport.key_value(SNAPSHOTS)


async def test_a_snapshot_larger_than_a_value_is_read_as_it_was_written(
    transport: QueueTransport, store: KeyValue
) -> None:
    assert await read_snapshot(transport) is None
    await write_snapshot(transport, LARGE)
    assert await read_snapshot(transport) == LARGE
    assert max(map(len, (await values(store)).values())) <= PART_BYTES


async def test_a_writer_keeps_two_at_most_and_removes_another_s(transport: QueueTransport, store: KeyValue) -> None:
    for number in range(5):
        await write_snapshot(transport, LARGE + bytes([number]), "a")
    assert await read_snapshot(transport) == LARGE + b"\x04"
    assert {key.rpartition(".")[0] for key in await values(store)} == {"part.a-0", "part.a-1"}
    await write_snapshot(transport, b"second", "b")
    assert await read_snapshot(transport) == b"second"
    assert not [key for key in await values(store) if key.startswith("part.a-0.")]


async def test_of_two_that_write_at_once_one_is_kept_whole_and_the_other_is_told(
    transport: QueueTransport, store: KeyValue
) -> None:
    both = await asyncio.gather(
        write_snapshot(transport, LARGE, "a"), write_snapshot(transport, b"second", "b"), return_exceptions=True
    )
    failed = [each for each in both if each is not None]
    assert all(isinstance(each, QueueError) and each.failure == "CONFLICT" for each in failed)
    assert await read_snapshot(transport) in (LARGE, b"second")


async def test_one_whose_parts_are_damaged_or_missing_is_none(transport: QueueTransport, store: KeyValue) -> None:
    await write_snapshot(transport, LARGE)
    part = next(iter(await values(store)))
    await store.put(part, b"other")
    assert await read_snapshot(transport) is None
    await store.delete(part)
    assert await read_snapshot(transport) is None


@pytest.mark.parametrize(
    "head",
    [b"", b"{}", b'{"name": "../x", "sha256": "%s", "parts": 1}', b'{"name": "a-0", "sha256": "%s", "parts": 1000000}'],
)
async def test_a_head_that_is_none_is_passed_over_and_replaced(
    transport: QueueTransport, store: KeyValue, head: bytes
) -> None:
    await store.put(HEAD, head.replace(b"%s", b"0" * 64))
    assert await read_snapshot(transport) is None
    await write_snapshot(transport, b"whole")
    assert await read_snapshot(transport) == b"whole"

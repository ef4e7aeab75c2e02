"""What is read of the transport's store is a whole snapshot, or none."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from sie_core.cluster.configs.snapshot import HEAD, PART_BYTES, STORE, read_snapshot, write_snapshot
from sie_core.contracts import KeyValue, QueueTransport
from tests.cluster.configs.conftest import connected, settings_of

LARGE = random.Random(1).randbytes(3 * PART_BYTES)


@pytest.fixture
async def transport() -> AsyncIterator[QueueTransport]:
    async with connected(settings_of("http://127.0.0.1:9")) as transport:
        yield transport


@pytest.fixture
async def store(transport: QueueTransport) -> KeyValue:
    return await transport.key_value(STORE)


async def test_a_snapshot_larger_than_a_value_is_read_as_it_was_written(
    transport: QueueTransport, store: KeyValue
) -> None:
    assert await read_snapshot(transport) is None
    await write_snapshot(transport, LARGE)
    assert await read_snapshot(transport) == LARGE
    assert max(len(each.value) for each in await store.entries()) <= PART_BYTES


async def test_the_parts_of_the_one_before_are_removed(transport: QueueTransport, store: KeyValue) -> None:
    await write_snapshot(transport, LARGE)
    await write_snapshot(transport, b"second")
    await write_snapshot(transport, b"second")
    assert await read_snapshot(transport) == b"second"
    assert len(await store.entries()) == 2


async def test_one_whose_parts_are_damaged_or_missing_is_none(transport: QueueTransport, store: KeyValue) -> None:
    await write_snapshot(transport, LARGE)
    part = (await store.entries("part"))[0]
    await store.put(part.key, b"other")
    assert await read_snapshot(transport) is None
    await store.delete(part.key)
    assert await read_snapshot(transport) is None


@pytest.mark.parametrize("head", [b"", b"{}", b'{"name": "../x", "parts": 1}', b'{"name": "%s", "parts": 1000000}'])
async def test_a_head_that_is_none_is_passed_over_and_replaced(
    transport: QueueTransport, store: KeyValue, head: bytes
) -> None:
    await store.put(HEAD, head.replace(b"%s", b"0" * 64))
    assert await read_snapshot(transport) is None
    await write_snapshot(transport, b"whole")
    assert await read_snapshot(transport) == b"whole"

"""A request's slices: how they are cut, and that every one is sent whenever their answers come."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from sie_cluster.gateway.flights.flight import MOST_ATTEMPTS, MOST_QUEUED, Flight, Part
from sie_cluster.gateway.flights.slicing import Packed, cut
from sie_cluster.gateway.routing import Destination
from sie_cluster.messages.errors import WORKER_LOST
from sie_cluster.messages.work import MOST_ITEMS, ResultHead

from sie_core.contracts import InferenceError, ResolvedModel

TO = Destination(cast("ResolvedModel", SimpleNamespace(id="m")), "", "", None, "", "default", "any")
SIZE = 10
"""Bytes of a result."""


@pytest.mark.parametrize(
    ("sizes", "most", "spans"),
    [
        ([1], 10, [1]),
        ([1] * 33, 100, [32, 1]),
        ([4, 4, 4], 8, [2, 1]),
        ([99, 1, 99], 8, [1, 1, 1]),
    ],
)
def test_items_travel_together_up_to_a_number_and_a_size(sizes: list[int], most: int, spans: list[int]) -> None:
    assert [len(span) for span in cut([b"x" * size for size in sizes], most)] == spans


class AtOnce:
    """Answers a slice while it is handed over; of the first one it says while the last is that its worker was lost."""

    def __init__(self) -> None:
        self.sent = 0

    async def publish(self, flight: Flight, part: Part, payload: bytes) -> None:
        await asyncio.sleep(0)
        self.sent += 1
        if part.head.slice == 0 and part.head.attempt == 1:
            return
        if part.head.slice == part.head.slices - 1:
            assert flight.answered(ResultHead("r", 0, 1, 0, {"code": WORKER_LOST}), [], SIZE)
        head = ResultHead("r", part.head.slice, part.head.attempt, len(part.span))
        assert flight.answered(head, [b"x"] * len(part.span), SIZE)
        assert not flight.answered(head, [b"x"] * len(part.span), SIZE), "the first result counts"

    def bury(self, flight: Flight, part: Part, why: str) -> None:
        raise AssertionError("nothing is refused")

    def cancel(self, flight: Flight) -> None:
        raise AssertionError("nothing failed")


async def test_answers_that_come_while_slices_are_sent_leave_none_unsent() -> None:
    publisher, slices = AtOnce(), 3 * MOST_QUEUED
    packed = Packed(TO, "encode", "r", b"", [b"x"] * (slices * MOST_ITEMS))
    flight = Flight(packed, "_INBOX.a.1", 60.0, 1 << 20, None, publisher)
    async with asyncio.timeout(30):
        await flight.run()
    assert publisher.sent == slices + 1
    assert flight.parts[0].head.alone
    assert flight.parts[0].head.attempt == 2
    assert sum(len(part.items or ()) for part in flight.parts) == len(packed.items)


class Lossy:
    """Says of the first attempt that two workers ended at it: it was given to another before the first was known."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.buried: list[int] = []

    async def publish(self, flight: Flight, part: Part, payload: bytes) -> None:
        self.attempts.append(part.head.attempt)
        flight.answered(ResultHead("r", 0, 1, 0, {"code": WORKER_LOST}), [], SIZE)

    def bury(self, flight: Flight, part: Part, why: str) -> None:
        self.buried.append(part.head.slice)

    def cancel(self, flight: Flight) -> None:
        """Nothing is on its way."""


async def test_two_workers_that_end_at_the_same_attempt_are_two() -> None:
    publisher = Lossy()
    flight = Flight(Packed(TO, "encode", "r", b"", [b"x"]), "_INBOX.a.1", 60.0, 1 << 20, None, publisher)
    with pytest.raises(InferenceError, match="so did the next one"):
        async with asyncio.timeout(30):
            await flight.run()
    assert (publisher.attempts, publisher.buried) == ([1, 2], [0])


class Changing(AtOnce):
    """Answers the first attempts by configs that alternate; later ones by the last, unless it changes for ever."""

    def __init__(self, *, for_ever: bool = False) -> None:
        self.attempts: list[tuple[int, int]] = []
        self._for_ever = for_ever

    async def publish(self, flight: Flight, part: Part, payload: bytes) -> None:
        slice_, attempt = part.head.slice, part.head.attempt
        self.attempts.append((slice_, attempt))
        config = f"{attempt}" if self._for_ever and slice_ else "old" if slice_ == 1 and attempt == 1 else "new"
        head = ResultHead("r", slice_, attempt, len(part.span), config=config)
        flight.answered(head, [b"x"] * len(part.span), SIZE)

    def cancel(self, flight: Flight) -> None:
        """Nothing is on its way."""


async def test_a_request_is_computed_by_one_config_though_it_changes_meanwhile() -> None:
    publisher = Changing()
    packed = Packed(TO, "encode", "r", b"", [b"x"] * (3 * MOST_ITEMS))
    flight = Flight(packed, "_INBOX.a.1", 60.0, 1 << 20, None, publisher)
    async with asyncio.timeout(30):
        await flight.run()
    assert publisher.attempts == [(0, 1), (1, 1), (2, 1), (1, 2)]
    assert {part.result and part.result.config for part in flight.parts} == {"new"}
    assert flight.result_bytes == 3 * SIZE, "a result that was computed again counts twice"


async def test_a_config_that_changes_for_ever_fails_the_request_by_type() -> None:
    publisher = Changing(for_ever=True)
    packed = Packed(TO, "encode", "r", b"", [b"x"] * (2 * MOST_ITEMS))
    flight = Flight(packed, "_INBOX.a.1", 60.0, 1 << 20, None, publisher)
    with pytest.raises(InferenceError, match="met another config of its model") as failed:
        async with asyncio.timeout(30):
            await flight.run()
    assert failed.value.code == "QUEUE_UNAVAILABLE"
    assert len(publisher.attempts) == 2 + MOST_ATTEMPTS - 1

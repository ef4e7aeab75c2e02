"""Slices that end workers, or that none answers: written for the operator instead of being sent again, and read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from sie_cluster.messages.frames import FrameError, decode, encode
from sie_cluster.messages.requests import read_item
from sie_cluster.messages.work import WorkHead, decode_work
from sie_cluster.queue.subjects import dead_queue, dead_subject
from sie_core.contracts import ConsumerSettings, Delivery, QueueError, QueueSettings, QueueTransport, Work

ROOM = 4096
"""Bytes of a message beside the slice."""
READER = "operator"
"""The consumer of whoever reads them."""
READ_S = 60.0
"""For how long letters that were read are kept from another reader, unless they are given back before."""
COMES_S = 10.0
"""For how long one letter is waited for."""
AT_A_TIME = 8
"""Letters on their way, each as large as a message at most."""
MOST_READINGS = 1_000_000
"""How often one can be read: beyond the times that somebody does within its day."""

log = logging.getLogger(__name__)


class DeadLetter(NamedTuple):
    """One of them, as an operator reads it."""

    request_id: str
    model: str
    slice: int
    why: str
    texts: list[str]
    """Of its items; empty where the slice was larger than a message."""


def encode_dead(head: WorkHead, why: str, work: bytes, most_bytes: int) -> bytes:
    """Write a dead letter: why, whose, and the slice as it was sent, left out where it is larger than a message.

    Args:
        head: The slice's.
        why: For the operator.
        work: The slice.
        most_bytes: Of a message.
    """
    told = {"why": why, "request_id": head.request_id, "model": head.model, "slice": head.slice, "first": head.first}
    return encode(told, (work if len(work) + ROOM <= most_bytes else b"",))


def decode_dead(payload: bytes) -> DeadLetter:
    """Read one.

    Raises:
        FrameError: It is none.
    """
    head, sections = decode(payload)
    try:
        (work,) = sections
        told = (str(head["request_id"]), str(head["model"]), int(head["slice"]), str(head["why"]))
        texts = [read_item(item).text or "" for item in decode_work(work)[2]] if len(work) else []
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"it is no dead letter: {error}") from None
    return DeadLetter(*told, texts)


async def bury(transport: QueueTransport, pool: str, head: WorkHead, why: str, work: bytes) -> None:
    """Put a slice into the queue of dead letters, made on first need; a broker that takes none is logged."""

    def stored(outcome: int | QueueError) -> None:
        if isinstance(outcome, QueueError):
            log.warning("the dead letter of %s is not kept: %s", head.id, outcome)

    letter = encode_dead(head, why, work, transport.max_payload)
    try:
        await _made(transport, dead_queue(pool))
        await transport.publish(Work(dead_subject(pool, head.model), head.id, letter), stored)
    except QueueError as error:
        stored(error)


async def read_dead(
    transport: QueueTransport, pool: str, most: int, show: Callable[[DeadLetter], None], *, remove: bool
) -> int:
    """Show dead letters of a pool in their order, and remove what was shown if asked to; return how many came.

    Those that cannot be read are logged and stay.

    Raises:
        QueueError: There is no such queue, or this user may not read it.
    """
    queue = dead_queue(pool)
    wanted = min(most, sum((await transport.backlog(queue.name)).values()))
    if not wanted:
        return 0
    consumer = ConsumerSettings(
        queue.name, READER, queue.subjects[0], ack_wait_s=READ_S, max_deliver=MOST_READINGS, max_in_flight=wanted
    )
    await transport.declare_consumer(consumer)
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    came: dict[int, Delivery] = {}
    pull = await transport.pull(queue.name, consumer.name, arrived.put_nowait, credit=min(wanted, AT_A_TIME))
    try:
        while len(came) < wanted:
            async with asyncio.timeout(COMES_S):
                delivery = await arrived.get()
            came[delivery.sequence] = delivery
            pull.add_credit(1)
    except TimeoutError:
        log.warning("%d of %d dead letters came; another reader may hold the rest", len(came), wanted)
    finally:
        await pull.close()  # what is given back below would come again
    for sequence, delivery in sorted(came.items()):
        try:
            letter = decode_dead(delivery.payload)
        except FrameError as error:
            log.warning("dead letter %d cannot be read: %s", sequence, error)
            delivery.nak()
            continue
        show(letter)
        if remove:
            delivery.ack()
        else:
            delivery.nak()
    return len(came)


async def _made(transport: QueueTransport, queue: QueueSettings) -> None:
    """Make a queue, where this user may; else it is there, or the publication tells."""
    try:
        await transport.declare_queue(queue)
    except QueueError as error:
        if error.failure != "DENIED":
            raise

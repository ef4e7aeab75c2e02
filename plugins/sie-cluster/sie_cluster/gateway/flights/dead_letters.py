"""Slices that end workers, or that none answers: kept for the operator instead of being sent again."""

from __future__ import annotations

import logging

from sie_cluster.messages.frames import encode
from sie_cluster.messages.work import WorkHead
from sie_cluster.queue.subjects import dead_queue, dead_subject
from sie_core.contracts import QueueError, QueueSettings, QueueTransport, Work

ROOM = 4096
"""Bytes of a message beside the slice."""

log = logging.getLogger(__name__)


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


async def _made(transport: QueueTransport, queue: QueueSettings) -> None:
    """Make a queue, where this user may; else it is there, or the publication tells."""
    try:
        await transport.declare_queue(queue)
    except QueueError as error:
        if error.failure != "DENIED":
            raise

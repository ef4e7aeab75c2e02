"""A queue as a stranger writes it, by the contract alone: `shelf://NAME`, one broker a name within a process."""

from __future__ import annotations

from sie_core.contracts import QueueTransportFactory
from sie_core.hookspecs import hookimpl
from sie_test_outside_queue.transport import ShelfTransport

__all__ = ["INTERFACES", "sie_queue_transports"]

INTERFACES = ("sie.queue/1",)


@hookimpl
def sie_queue_transports():
    return [QueueTransportFactory("shelf", lambda url, settings: ShelfTransport(url))]

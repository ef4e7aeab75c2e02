"""The plugin `nats`: the transport of `nats://` and `tls://` URLs. It imports the client when one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sie_core.contracts import Access, BrokerPlan, LocalBroker, QueueTransport, QueueTransportFactory
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.queue/1",)


@hookimpl
def sie_queue_transports() -> list[QueueTransportFactory]:
    """Register JetStream."""
    return [QueueTransportFactory("nats", _create, _configure, local=_local), QueueTransportFactory("tls", _create)]


def _create(url: str, settings: Mapping[str, str]) -> QueueTransport:
    from sie_nats.client import check_library
    from sie_nats.options import Options
    from sie_nats.transport import JetStreamTransport

    check_library()
    return JetStreamTransport(Options.read(url, settings))


def _configure(plan: BrokerPlan) -> str:
    from sie_nats.broker.permissions import broker_config

    return broker_config(plan)


def _local(folder: Path, users: Sequence[Access], brokers: int) -> LocalBroker:
    from sie_nats.broker.local import local_broker

    return local_broker(folder, users, brokers)

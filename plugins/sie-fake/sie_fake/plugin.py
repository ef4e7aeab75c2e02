"""The plugin `fake`: its family, its models, its emulated device, and the queue inside one process."""

from __future__ import annotations

from pathlib import Path

from sie_core.contracts import Claim, ModelCard, ModelFamily, QueueTransportFactory
from sie_core.hookspecs import hookimpl
from sie_fake.device import FakeProbe
from sie_fake.options import OPTIONS

INTERFACES = ("sie.family/1", "sie.models/1", "sie.probe/1", "sie.queue/1")


def claims(card: ModelCard) -> Claim | None:
    """Claim no weights: fake models name the family themselves."""
    return None


@hookimpl
def sie_model_families() -> list[ModelFamily]:
    """Register the family `fake`."""
    return [ModelFamily("fake", "sie_fake.adapter:load", claims, options=OPTIONS, weightless=True)]


@hookimpl
def sie_model_folders() -> list[Path]:
    """Register the models that ship with the plugin."""
    return [Path(__file__).parent / "models"]


@hookimpl
def sie_device_probes() -> list[FakeProbe]:
    """Register the emulated accelerator, which only `SIE_DEVICE=fake` chooses."""
    return [FakeProbe()]


@hookimpl
def sie_queue_transports() -> list[QueueTransportFactory]:
    """Register the transport of `memory://` URLs."""
    from sie_fake.broker.queue import in_process_transports

    return in_process_transports()

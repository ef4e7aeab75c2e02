"""Chooses the device that `SIE_DEVICE` names among those the registered probes find."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sie_core.contracts import Device, DeviceProbe, PluginError

log = logging.getLogger(__name__)


def choose_device(wanted: str, probes: Sequence[DeviceProbe]) -> Device:
    """Return the device `auto`, `kind` or `kind:index` names.

    `auto` asks the probes from the highest priority down and takes the first device found; a kind alone is its first.

    Raises:
        PluginError: No such device; the message says what was found.
    """
    kind, _, index = wanted.partition(":")
    found: list[Device] = []
    for probe in sorted(probes, key=lambda probe: (-probe.priority, probe.kind)):
        if wanted == "auto" or probe.kind == kind:
            found += _ask(probe)
        if wanted == "auto" and found:
            return found[0]
    for device in found:
        if not index or device.index == int(index):
            return device
    there = found or [device for probe in probes if probe.kind != kind for device in _ask(probe)]
    listed = ", ".join(f"{device} ({device.name})" if device.name else str(device) for device in there) or "none"
    raise PluginError(f"SIE_DEVICE={wanted}: no such device. Found: {listed}. Name one of them, or `auto`.")


def _ask(probe: DeviceProbe) -> list[Device]:
    try:
        return probe.devices()
    except Exception:
        log.exception("the device probe %r failed and is passed over", probe.kind)
        return []

"""Finds what `SIE_DEVICE` and `SIE_ATTENTION_BACKEND` name among what plugins registered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sie_core.contracts import Device, DeviceProbe, PluginError, RunnerSpec

log = logging.getLogger(__name__)

# The attention backends that need no runner which names them.
OF_EVERY_FAMILY = frozenset({"auto", "sdpa", "eager"})

# Takes the kind of a probe, what it did wrong and the exception.
Report = Callable[[str, str, Exception], object]


def _log(kind: str, problem: str, error: Exception) -> None:
    log.error("the device probe %r %s", kind, problem, exc_info=error)


def choose_device(wanted: str, probes: Sequence[DeviceProbe], report: Report = _log) -> Device:
    """Return the device `auto`, `kind` or `kind:index` names; a probe that fails is told and passed over.

    `auto` asks the probes from the highest priority down and takes the first device found; a kind alone is its first.

    Raises:
        PluginError: No such device; the message says what was found.
    """
    kind, _, index = wanted.partition(":")
    found: list[Device] = []
    for probe in sorted(probes, key=lambda probe: (-probe.priority, probe.kind)):
        if wanted == "auto" or probe.kind == kind:
            found += _ask(probe, report)
        if wanted == "auto" and found:
            return found[0]
    for device in found:
        if not index or device.index == int(index):
            return device
    there = found or [device for probe in probes if probe.kind != kind for device in _ask(probe, report)]
    listed = ", ".join(f"{device} ({device.name})" if device.name else str(device) for device in there) or "none"
    raise PluginError(f"SIE_DEVICE={wanted}: no such device. Found: {listed}. Name one of them, or `auto`.")


def require_attention_backend(wanted: str, runners: Sequence[RunnerSpec], device: Device) -> None:
    """Check that a backend which needs a runner of its own has one on `device`.

    Raises:
        PluginError: It has none; the message lists the backends there are.
    """
    if wanted in OF_EVERY_FAMILY:
        return
    named = [spec for spec in runners if wanted in spec.attention_backends]
    if any(not spec.devices or device.kind in spec.devices for spec in named):
        return
    if not named:
        there = OF_EVERY_FAMILY.union(*(spec.attention_backends for spec in runners))
        raise PluginError(
            f"SIE_ATTENTION_BACKEND={wanted} is not installed; there are {', '.join(sorted(there))}. Install a plugin "
            "with a runner that names it (docs/runners.md lists some), or set it to `auto`."
        )
    served = ", ".join(sorted({kind for spec in named for kind in spec.devices}))
    raise PluginError(
        f"SIE_ATTENTION_BACKEND={wanted} needs a device {served}, and this is {device}. Set it to `auto`."
    )


def _ask(probe: DeviceProbe, report: Report) -> list[Device]:
    try:
        devices = list(probe.devices())
        if odd := [each for each in devices if not isinstance(each, Device)]:
            raise TypeError(f"devices returned {odd[0]!r:.100}, which is no Device")
    except Exception as error:
        report(probe.kind, f"failed and is passed over ({type(error).__name__})", error)
        return []
    return devices

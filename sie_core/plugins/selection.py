"""Finds what `SIE_DEVICE`, `SIE_ATTENTION_BACKEND` and `SIE_RUNNER` name among what plugins registered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sie_core.contracts import Device, DeviceProbe, PluginError, RunnerSpec

# The attention backends that need no runner which names them.
OF_EVERY_FAMILY = frozenset({"auto", "sdpa", "eager"})

# Values of `SIE_RUNNER` that name no runner.
RUNNER_CHOICES = ("auto", "priority")

# Called with the kind of a probe, its fault and the exception; the probe is skipped.
Report = Callable[[str, str, Exception], object]


def choose_device(wanted: str, probes: Sequence[DeviceProbe], report: Report) -> Device:
    """Return the device that `auto`, `kind` or `kind:index` names, or raise `PluginError` listing the found ones."""
    kind, _, index = wanted.partition(":")
    found: list[Device] = []
    # `auto` is the first device of the highest priority that has any; a kind without an index is its first.
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
    """Raise `PluginError` if a backend needs a runner of its own that is not installed for `device`."""
    if wanted in OF_EVERY_FAMILY:
        return
    named = [spec for spec in runners if wanted in spec.attention_backends]
    if any(not spec.devices or device.kind in spec.devices for spec in named):
        return
    if not named:
        there = OF_EVERY_FAMILY.union(*(spec.attention_backends for spec in runners))
        raise PluginError(
            f"SIE_ATTENTION_BACKEND={wanted} is not installed; there are {', '.join(sorted(there))}. Install a plugin "
            "with a runner that names it (docs/extend/runners.md lists some), or set it to `auto`."
        )
    served = ", ".join(sorted({kind for spec in named for kind in spec.devices}))
    raise PluginError(
        f"SIE_ATTENTION_BACKEND={wanted} needs a device {served}, and this is {device}. Set it to `auto`."
    )


def require_runner(wanted: str, runners: Sequence[RunnerSpec]) -> None:
    """Raise `PluginError` if the runner requested by name is not registered."""
    there = [*RUNNER_CHOICES, *sorted(spec.name for spec in runners)]
    if wanted not in there:
        raise PluginError(
            f"SIE_RUNNER={wanted} is no registered runner; there are {', '.join(there)}. Install the plugin that has "
            "it, or set it to `auto`."
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

"""Finds the registered parts that settings name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sie_core.contracts import Device, DeviceProbe, PluginError, RunnerSpec
from sie_core.plugins.calls import Calls, HungError
from sie_core.plugins.faults import told
from sie_core.plugins.model import PluginSet

Made = TypeVar("Made")

PROBE_LIMIT_S = 60.0
"""Seconds that a probe may take to list its devices: it may import its library, on a slow disk."""

# The attention backends that need no runner which names them.
OF_EVERY_FAMILY = frozenset({"auto", "sdpa", "eager"})

# Values of `SIE_RUNNER` that name no runner.
RUNNER_CHOICES = ("auto", "priority")

# Called with the kind of a probe, its fault and the exception; the probe is skipped.
Report = Callable[[str, str, BaseException], object]


def choose_device(wanted: str, probes: Sequence[DeviceProbe], report: Report) -> Device:
    """Return the device that `auto`, `kind` or `kind:index` names, or raise `PluginError` listing the found ones."""
    kind, _, index = wanted.partition(":")
    calls = Calls()
    found: list[Device] = []
    # `auto` is the first device of the highest priority that has any; a kind without an index is its first.
    for probe in sorted(probes, key=lambda probe: (-probe.priority, probe.kind)):
        if wanted == "auto" or probe.kind == kind:
            found += _ask(probe, report, calls)
        if wanted == "auto" and found:
            return found[0]
    for device in found:
        if not index or device.index == int(index):
            return device
    there = found or [device for probe in probes if probe.kind != kind for device in _ask(probe, report, calls)]
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


def make_chosen(
    plugins: PluginSet, hook: str, variable: str, chosen: str, default: str, make: Callable[[str], Made]
) -> tuple[Made, str | None]:
    """Make what a setting names by `make`. If that fails, report its plugin, and make the default one.

    Returns:
        What was made, and why it is the default one; None if it is the one that the setting names.

    Raises:
        PluginError: There is none of that name, or the default one cannot be made.
    """
    try:
        return make(chosen), None
    except PluginError:
        raise
    except Exception as error:
        who = plugins.faulty(hook, chosen, f"cannot be made ({type(error).__name__})", error)
        if chosen == default:
            remedy = "Choose another one, or mend the plugin."
            raise PluginError(f"{variable}={chosen!r}: {who} raised {told(error)}. {remedy}") from error
        return make(default), f"{who} cannot be made: {default!r} serves until a restart"


def _ask(probe: DeviceProbe, report: Report, calls: Calls) -> list[Device]:
    try:
        devices = calls.within(f"probe-{probe.kind}", PROBE_LIMIT_S, lambda: list(probe.devices()))
        if odd := [each for each in devices if not isinstance(each, Device)]:
            raise TypeError(f"devices returned {odd[0]!r:.100}, which is no Device")
    except HungError as error:
        report(probe.kind, f"{error} from `devices` and is passed over", error)
        return []
    except (Exception, SystemExit) as error:
        report(probe.kind, f"failed and is passed over ({type(error).__name__})", error)
        return []
    return devices

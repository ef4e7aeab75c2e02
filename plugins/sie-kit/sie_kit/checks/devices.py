"""The checks of device probes.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sie_core.contracts import DeviceProbe


def devices_are_of_its_kind(probe: DeviceProbe) -> None:
    """Every device is of the probe's kind, with its own index; asked again, it finds the same."""
    devices = probe.devices()
    assert probe.devices() == devices, "asked twice, it finds other devices"
    assert all(device.kind == probe.kind for device in devices), f"a device is not of kind {probe.kind!r}"
    indices = [device.index for device in devices]
    assert len(indices) == len(set(indices)), f"two devices share an index: {indices}"


def memory_adds_up(probe: DeviceProbe) -> None:
    """Memory in use is between 0 and the total, both in whole bytes."""
    for device in probe.devices():
        memory = probe.memory(device)
        for count in (memory.used, memory.total):
            assert isinstance(count, int), f"{device} has {count!r} bytes, no int"
        assert 0 <= memory.used <= memory.total, f"{device} uses {memory.used} of {memory.total} bytes"
        assert memory.total > 0, f"{device} has no memory"


def caches_may_be_freed_at_any_time(probe: DeviceProbe) -> None:
    """`free_caches` returns, with nothing to free too."""
    for device in probe.devices():
        try:
            probe.free_caches(device)
        except Exception as error:
            raise AssertionError(f"free_caches fails with {type(error).__name__}: {error}") from error


PROBE_CHECKS: Sequence[Callable[[DeviceProbe], None]] = (
    devices_are_of_its_kind,
    memory_adds_up,
    caches_may_be_freed_at_any_time,
)

"""An emulated accelerator: it runs batches in order on a stream of its own, as CUDA does."""

from __future__ import annotations

from sie_core.contracts import Device, DeviceMemory


class FakeProbe:
    """Finds one asynchronous device of kind `fake`; its priority keeps `SIE_DEVICE=auto` from taking it."""

    kind = "fake"
    priority = -1000

    def devices(self) -> list[Device]:
        """List the emulated device."""
        return [Device("fake", name="emulated accelerator", asynchronous=True)]

    def memory(self, device: Device) -> DeviceMemory:
        """Say 1 GiB of which nothing is used: fakes have no weights."""
        return DeviceMemory(used=0, total=2**30)

"""An emulated accelerator: it runs the batches of all models in order on its own stream, as CUDA does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

from sie_core.contracts import Device, DeviceMemory
from sie_fake.memory import MEMORY


class FakeProbe:
    """Finds one asynchronous device of kind `fake`; its priority keeps `SIE_DEVICE=auto` from taking it."""

    kind = "fake"
    priority = -1000

    def devices(self) -> list[Device]:
        """List the emulated device."""
        return [Device("fake", name="emulated accelerator", asynchronous=True)]

    def memory(self, device: Device) -> DeviceMemory:
        """Report the memory that the fakes on it claim, of 1 GiB."""
        return DeviceMemory(used=MEMORY.used, total=MEMORY.total, own=MEMORY.used)

    def free_caches(self, device: Device) -> None:
        """Do nothing: it has no caches."""


@cache
def stream() -> ThreadPoolExecutor:
    """Return the stream of the emulated accelerator, which ends with the process."""
    return ThreadPoolExecutor(1, "fake-device")

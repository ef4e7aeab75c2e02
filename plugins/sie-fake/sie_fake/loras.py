"""LoRA adapters of fakes: a name that changes every vector, and as much memory as their files are long."""

from __future__ import annotations

from pathlib import Path

from sie_core.contracts import Device, Lora
from sie_fake.memory import Held, allocate


class FakeFactors:
    """Memory that is released with the last reference, as that of tensors is, or with the model."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def free(self) -> None:
        """Release it."""
        self._held.free()

    __del__ = free


def load_lora(name: str, folder: Path, device: Device) -> Lora:
    """Take the memory of the adapter in `folder`; nothing of its files is read.

    Raises:
        OutOfDeviceMemory: Not enough is left.
    """
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return Lora(name, FakeFactors(allocate(size, device)), size)

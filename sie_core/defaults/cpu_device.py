"""Built-in plugin: the CPU as a device, its memory measured as the container sees it.

It imports no model library; how many threads a batch may use is the affair of `sie_core.cpu_budget`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from sie_core.contracts import CONTRACT_VERSION, Device, DeviceMemory, DeviceProbe
from sie_core.hookspecs import hookimpl

__all__ = ["CONTRACT_VERSION", "CpuProbe", "sie_device_probes"]

UNLIMITED = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2**63."""


class CpuProbe:
    """Finds the one CPU device and measures memory: the tightest cgroup limit above the process, else the machine's.

    Args:
        root: Where `/proc` and `/sys` are.
    """

    kind = "cpu"
    priority = 0

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def devices(self) -> list[Device]:
        """List the CPU; there always is one."""
        return [Device("cpu", name=self._name())]

    def memory(self, device: Device) -> DeviceMemory:
        """Measure memory in bytes. Page cache the kernel can drop at once counts as free."""
        machine = psutil.virtual_memory()
        tightest = DeviceMemory(machine.total - machine.available, machine.total)
        for group in self._groups():
            if group.total < tightest.total:
                tightest = group
        return tightest

    def _name(self) -> str:
        for line in _lines(self._root / "proc/cpuinfo"):
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
        return platform.processor() or platform.machine()

    def _groups(self) -> Iterator[DeviceMemory]:
        """Give the limit and use of every cgroup above the process that has a limit."""
        for line in _lines(self._root / "proc/self/cgroup"):
            number, controllers, path = line.split(":", 2)
            if number == "0" and not controllers:
                mount, files = "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                mount = "sys/fs/cgroup/memory"
                files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            else:
                continue
            yield from self._climb(self._root / mount, path, files)

    def _climb(self, mount: Path, path: str, files: Sequence[str]) -> Iterator[DeviceMemory]:
        limit_file, use_file, droppable_row = files
        folder = mount / path.lstrip("/")
        # Inside a container the path may be the host's; what the container may see then lies at the mount.
        folder = folder if folder.is_dir() and mount in (folder, *folder.parents) else mount
        while folder == mount or mount in folder.parents:
            limit, used = _number(folder / limit_file), _number(folder / use_file)
            if limit is not None and used is not None and limit < UNLIMITED:
                yield DeviceMemory(max(0, used - _row(folder / "memory.stat", droppable_row)), limit)
            folder = folder.parent


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _row(path: Path, name: str) -> int:
    for line in _lines(path):
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


@hookimpl
def sie_device_probes() -> list[DeviceProbe]:
    """Register the CPU."""
    return [CpuProbe()]

"""Built-in plugin: the CPU as a device, its memory measured as the container sees it.

It imports no model library; how many threads a batch may use is the affair of `sie_core.cpu_budget`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from sie_core.contracts import CONTRACT_VERSION, Device, DeviceMemory, DeviceProbe
from sie_core.hookspecs import hookimpl

__all__ = ["CONTRACT_VERSION", "CpuProbe", "sie_device_probes"]

UNLIMITED = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2**63."""


class GroupFiles(NamedTuple):
    """The files of a memory cgroup."""

    limits: tuple[str, ...]
    """The tightest counts: above the one the kernel kills, above the other it stops every allocation to reclaim."""
    used: str
    cache: tuple[str, str]
    """The rows of `memory.stat` that make up the page cache."""
    mapped: str
    """The row that tells how much of it some process maps."""


V2 = GroupFiles(("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file"), "file_mapped")
V1 = GroupFiles(
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
    "total_mapped_file",
)


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
        """Measure memory in bytes. Page cache that no process maps counts as free: the kernel drops it when asked.

        What a process maps counts as used, its weights among it: the kernel could drop that too, and every batch would
        read it from the disk again.
        """
        machine = psutil.virtual_memory()
        own = psutil.Process().memory_info().rss
        tightest = DeviceMemory(machine.total - machine.available, machine.total, own)
        for group in self._groups():
            if group.total < tightest.total:
                tightest = DeviceMemory(group.used, group.total, own)
        return tightest

    def free_caches(self, device: Device) -> None:
        """Do nothing: the engine itself has the C library let go of free pages."""

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
                mount, files = "sys/fs/cgroup", V2
            elif "memory" in controllers.split(","):
                mount, files = "sys/fs/cgroup/memory", V1
            else:
                continue
            yield from self._climb(self._root / mount, path, files)

    def _climb(self, mount: Path, path: str, files: GroupFiles) -> Iterator[DeviceMemory]:
        folder = mount / path.lstrip("/")
        # Inside a container the path may be the host's; what the container may see then lies at the mount.
        folder = folder if folder.is_dir() and mount in (folder, *folder.parents) else mount
        while folder == mount or mount in folder.parents:
            limits = [limit for name in files.limits if (limit := _number(folder / name)) is not None]
            limit, used = min(limits, default=UNLIMITED), _number(folder / files.used)
            if used is not None and limit < UNLIMITED:
                yield DeviceMemory(max(0, used - _droppable(folder / "memory.stat", files)), limit)
            folder = folder.parent


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _droppable(stat: Path, files: GroupFiles) -> int:
    """Count the page cache that no process maps: of weights just unloaded, for example."""
    values = dict(line.split(" ", 1) for line in _lines(stat) if " " in line)
    cached = sum(int(values.get(row, 0)) for row in files.cache)
    return max(0, cached - int(values.get(files.mapped, 0)))


@hookimpl
def sie_device_probes() -> list[DeviceProbe]:
    """Register the CPU."""
    return [CpuProbe()]

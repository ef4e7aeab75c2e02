"""Built-in plugin: the CPU as a device, its memory measured as the container sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from sie_core.contracts import Device, DeviceMemory, DeviceProbe, processor
from sie_core.hookspecs import hookimpl

__all__ = ["INTERFACES", "CpuProbe", "sie_device_probes"]

INTERFACES = ("sie.probe/1",)

UNLIMITED = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2**63."""


class GroupFiles(NamedTuple):
    """The files of a memory cgroup."""

    limits: tuple[str, ...]
    """The tightest counts. Above one the kernel kills the process, above the other it reclaims at each allocation."""
    used: str
    cache: tuple[str, str]
    """The rows of `memory.stat` that make up the page cache."""
    mapped: str
    """The row with the part of the page cache that some process maps."""


V2 = GroupFiles(("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file"), "file_mapped")
V1 = GroupFiles(
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
    "total_mapped_file",
)


class CpuProbe:
    """Finds the one CPU device and measures memory, by the tightest cgroup limit of the process, otherwise by the
    machine.

    Args:
        root: The parent of `/proc` and `/sys`.
    """

    kind = "cpu"
    priority = 0

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def devices(self) -> list[Device]:
        """Return the one CPU device."""
        return [Device("cpu", name=processor(self._root / "proc/cpuinfo").name)]

    def memory(self, device: Device) -> DeviceMemory:
        """Measure memory in bytes. Page cache that no process maps counts as free: the kernel drops it when asked.

        Mapped pages, such as weights, count as used: if the kernel dropped them, every batch would read them from disk
        again.
        """
        machine = psutil.virtual_memory()
        own = psutil.Process().memory_info().rss
        tightest = DeviceMemory(machine.total - machine.available, machine.total, own)
        for group in self._groups():
            if group.total < tightest.total:
                tightest = DeviceMemory(group.used, group.total, own)
        return tightest

    def free_caches(self, device: Device) -> None:
        """Do nothing: the engine itself trims the C library's heap."""

    def _groups(self) -> Iterator[DeviceMemory]:
        """Yield the limit and use of each cgroup of the process that has a limit."""
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
        # Inside a container the path may be the host's; the container's own files are then at the mount point.
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
    """Return the bytes of page cache that no process maps, such as weights just unloaded."""
    values = dict(line.split(" ", 1) for line in _lines(stat) if " " in line)
    cached = sum(int(values.get(row, 0)) for row in files.cache)
    return max(0, cached - int(values.get(files.mapped, 0)))


@hookimpl
def sie_device_probes() -> list[DeviceProbe]:
    """Register the CPU."""
    return [CpuProbe()]

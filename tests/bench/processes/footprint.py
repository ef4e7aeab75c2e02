"""CPU time and memory of a process with all its children."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psutil


class Footprint:
    """What the tree below a process has used. Figures of processes that have ended are in their parents' CPU time.

    Args:
        pid: The root of the tree.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._root = psutil.Process(pid)

    def cpu_seconds(self) -> float:
        """Sum up user and system time, reaped children included."""
        times = [process.cpu_times() for process in self._alive()]
        return sum(each.user + each.system + each.children_user + each.children_system for each in times)

    def rss_bytes(self) -> int:
        """Sum up the resident memory; pages that processes share count in each."""
        return sum(process.memory_info().rss for process in self._alive())

    def peak_bytes(self) -> int | None:
        """Sum up the largest resident memory each process ever had, as the kernel keeps it; None where it does not."""
        peaks = [_peak(process.pid) for process in self._alive()]
        return None if None in peaks else sum(peak for peak in peaks if peak is not None)

    def _alive(self) -> Iterator[psutil.Process]:
        for process in [self._root, *self._root.children(recursive=True)]:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _peak(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else None

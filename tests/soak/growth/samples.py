"""What a process holds, measured again and again: memory, open files, threads.

Proportional memory (PSS) is left out: it moves as other processes start and end that share a library.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import psutil

MB = 1e6
MEASURES = ("rss", "anonymous", "files", "threads")


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a process; memory in MB, None where the system does not tell."""

    seconds: float
    """Of the monotonic clock, which all processes of a machine share."""
    rss: float
    anonymous: float | None
    """Pages of no file: what was allocated. The page cache of mapped weights does not move it."""
    files: int
    threads: int


def look(process: psutil.Process) -> Sample:
    """Measure a process.

    Raises:
        psutil.NoSuchProcess: It is gone.
    """
    allocated = _anonymous(process.pid)
    with process.oneshot():
        rss = process.memory_info().rss / MB
        return Sample(time.monotonic(), rss, allocated, process.num_fds(), process.num_threads())


@contextmanager
def watching(pid: int, every_s: float) -> Iterator[list[Sample]]:
    """Measure a process every so often until the block ends, or it does."""
    process, samples, over = psutil.Process(pid), list[Sample](), Event()

    def watch() -> None:
        try:
            while not over.wait(every_s):
                samples.append(look(process))
        except psutil.NoSuchProcess:
            return

    thread = Thread(target=watch, name="watch")
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def _anonymous(pid: int) -> float | None:
    try:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    found = re.search(r"^Anonymous:\s+(\d+) kB", told, re.MULTILINE)
    return int(found[1]) * 1024 / MB if found else None

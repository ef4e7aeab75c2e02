"""What large requests leave on glibc's heap goes back to the operating system."""

import asyncio
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sie_core.memory import heap
from sie_core.memory.heap import keep_trimmed, trim_heap

BLOCK, BLOCKS = 65_536, 2_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")


def test_memory_freed_between_blocks_that_stay_goes_back() -> None:
    blocks = [bytearray(BLOCK) for _ in range(BLOCKS)]
    kept = blocks[::100]
    blocks.clear()
    before = resident_bytes()
    trim_heap()
    assert before - resident_bytes() > BLOCK * BLOCKS / 2
    assert len(kept) == BLOCKS / 100


async def test_the_heap_is_trimmed_once_nothing_large_is_at_work() -> None:
    busy = True
    keeping = asyncio.create_task(keep_trimmed(lambda: busy, look_s=0.001))
    await asyncio.sleep(0)  # it begins
    blocks = [bytearray(BLOCK) for _ in range(BLOCKS)]
    kept = blocks[::100]
    blocks.clear()
    before = resident_bytes()
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert before - resident_bytes() < BLOCK * BLOCKS / 2
    busy = False
    async with asyncio.timeout(30):
        while before - resident_bytes() <= BLOCK * BLOCKS / 2:  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.001)
    keeping.cancel()
    assert len(kept) == BLOCKS / 100


async def test_trimming_goes_on_after_a_time_without_memory_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, started = iter([RuntimeError("can't start new thread")]), asyncio.Event()

    async def to_thread(call: Callable[[], None]) -> None:
        for error in starts:
            raise error
        call()
        started.set()

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    keeping = asyncio.create_task(keep_trimmed(lambda: False, look_s=0.001))
    await asyncio.sleep(0)  # it begins
    blocks = [bytearray(BLOCK) for _ in range(BLOCKS)]
    await asyncio.wait_for(started.wait(), 30)
    assert not keeping.done()
    keeping.cancel()
    assert len(blocks) == BLOCKS


ENDS = """
import threading
from sie_core.memory.heap import _resident, bound_heap, trim_heap
bound_heap()
bytearray(31 << 20)  # glibc as it comes keeps blocks as large as one that it has returned
rest, together = _resident(), threading.Barrier(6)
def work():
    blocks = [bytearray(2**20) for _ in range(40)]
    together.wait()
    blocks.clear()
    together.wait()
    together.wait()  # who ends leaves its heap to others
for _ in range(5):
    threading.Thread(target=work).start()
together.wait()
together.wait()
freed = _resident() - rest
trim_heap()
print(freed, _resident() - rest)
together.wait()
"""
MALLOC_VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX")


def output_of(program: str) -> tuple[int, int]:
    variables = {name: value for name, value in os.environ.items() if name not in MALLOC_VARIABLES}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, timeout=60, check=True)
    first, second = map(int, done.stdout.split())
    return first, second


def test_what_is_free_at_the_ends_of_the_heaps_of_threads_goes_back() -> None:
    freed, trimmed = output_of(ENDS)
    assert freed > 100 * 2**20
    assert trimmed < 10 * 2**20


FAULTS = """
import resource
from sie_core.memory.heap import bound_heap
bound_heap(keeps_large=True)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = bytearray(40 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults(), faults())
"""


LARGEST_OF_OLD = 32 * 2**20


def test_a_glibc_that_refuses_so_large_blocks_keeps_those_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[int, int] = {}

    class Old:
        def mallopt(self, option: int, value: int) -> int:
            if option == heap._MMAP_THRESHOLD and value > LARGEST_OF_OLD:
                return 0
            kept[option] = value
            return 1

        def malloc(self, size: int) -> int:
            return 1

        def realloc(self, block: int, size: int) -> int:
            return block

    monkeypatch.setattr(heap, "_library", Old)
    monkeypatch.setattr(heap, "_ENDS", heap._Ends())
    for name in heap.BOUNDS:
        monkeypatch.delenv(name, raising=False)
    heap.bound_heap(keeps_large=True)
    assert kept[heap._MMAP_THRESHOLD] == LARGEST_OF_OLD
    assert len(kept) == len(heap.BOUNDS)


@pytest.mark.skipif(platform.libc_ver() < ("glibc", "2.35"), reason="glibc returns blocks of over 32 MB")
def test_where_the_system_grants_no_threads_the_ends_of_their_heaps_stay(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    library, ends, started = heap._library(), heap._Ends(), []
    start = threading.Thread.start

    def grudging(thread: threading.Thread) -> None:
        if len(started) == heap.HEAPS:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", grudging)
    ends.start(library, 64 * 2**20)
    assert len(started) == heap.HEAPS
    assert "will not be returned" in caplog.text
    ends.trim(library)  # as before


def test_the_block_of_a_large_answer_is_there_for_the_next_one() -> None:
    first, second = output_of(FAULTS)
    assert first > 5000
    assert second < 100

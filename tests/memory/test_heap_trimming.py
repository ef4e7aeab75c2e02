"""What large requests leave on glibc's heap goes back to the operating system."""

import asyncio
import os
import platform
import subprocess
import sys
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

    monkeypatch.setattr(heap, "_library", Old)
    for name in {**heap.BOUNDS, **heap.KEEPING}:
        monkeypatch.delenv(name, raising=False)
    heap.bound_heap(keeps_large=True)
    assert kept[heap._MMAP_THRESHOLD] == LARGEST_OF_OLD
    assert len(kept) == len(heap.BOUNDS) + len(heap.KEEPING)


@pytest.mark.skipif(platform.libc_ver() < ("glibc", "2.35"), reason="glibc returns blocks of over 32 MB")
def test_the_block_of_a_large_answer_is_there_for_the_next_one() -> None:
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
    variables = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run([sys.executable, "-c", FAULTS], env=variables, capture_output=True, timeout=60, check=True)
    first, second = map(int, done.stdout.split())
    assert first > 5000
    assert second < 100

"""What large requests leave on glibc's heap goes back to the operating system."""

import asyncio
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from sie_core.memory.heap import BOUNDS, keep_trimmed, trim_heap

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


LARGE_BLOCKS = """
from pathlib import Path
import sys
from sie_core.memory.heap import bound_heap

if sys.argv[1] == "bounded":
    bound_heap()
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
bytes(bytearray(9 << 20))  # glibc takes the first large block that is freed for a sign that more will come
before = resident()
blocks = [(bytearray(b"x") * (8 << 20), bytearray(100_000)) for _ in range(20)]
kept = [small for _, small in blocks]
del blocks
print(resident() - before)
"""


def left_behind(how: str) -> int:
    environment = {name: value for name, value in os.environ.items() if name not in BOUNDS}
    ran = subprocess.run(
        [sys.executable, "-c", LARGE_BLOCKS, how], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def test_large_blocks_of_a_bounded_heap_go_back_as_soon_as_they_are_freed() -> None:
    assert left_behind("bounded") < 32 << 20
    assert left_behind("as it comes") > 100 << 20


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

"""Memory that is free within glibc's heap goes back to the operating system."""

import os
import platform
from pathlib import Path

import pytest

from sie_core.memory.heap import trim_heap

BLOCK, BLOCKS = 65_536, 2_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_memory_freed_between_blocks_that_stay_goes_back() -> None:
    blocks = [bytearray(BLOCK) for _ in range(BLOCKS)]
    kept = blocks[::100]
    blocks.clear()
    before = resident_bytes()
    trim_heap()
    assert before - resident_bytes() > BLOCK * BLOCKS / 2
    assert len(kept) == BLOCKS / 100

"""Encoders drawn at random run through the kernels as a reference has them, and clean of memory and thread errors.

`make sanitize` does the same for every build and with many more encoders.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sie_cpu.builds import BUILDS, processor_flags

from tests.cpu.native.building import CROSS, EMULATOR, SANITIZERS, Size, compile_fuzz, flags_of, run_fuzz

pytest.importorskip("hatchling")
RUNNABLE = [build.library for build in BUILDS if build.flags <= processor_flags()]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.skipif(shutil.which("c++") is None or not RUNNABLE, reason="no C++ compiler here, or another processor")
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_nothing_is_read_or_written_where_it_must_not_be(sanitizer: str, tmp_path: Path) -> None:
    program = compile_fuzz(tmp_path, (*flags_of(RUNNABLE[-1]), *SANITIZERS[sanitizer]))
    run_fuzz(program, Size(encoders=12, tokens=100))


@pytest.mark.skipif(
    not (shutil.which(CROSS) and shutil.which(EMULATOR)),
    reason=f"no {CROSS} or no {EMULATOR} here (Debian: g++-aarch64-linux-gnu, qemu-user)",
)
def test_the_build_for_arm_equals_the_reference(tmp_path: Path) -> None:
    program = compile_fuzz(tmp_path, (*flags_of("kernels_neon.so", "aarch64"), "-O2", "-static"), CROSS)
    assert "12 encoders" in run_fuzz(program, Size(encoders=12, tokens=80), [EMULATOR])

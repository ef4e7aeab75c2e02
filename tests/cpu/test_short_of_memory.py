"""Where the system refuses memory, the kernels say so: nothing of C++ unwinds into Python, and the process lives on."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sie_cpu.builds import BUILDS, processor_flags

RUNNABLE = [build.library for build in BUILDS if build.flags <= processor_flags() and build.path.exists()]
SCRIPT = """
import ctypes, resource, sys
import torch
from sie_cpu.builds import BUILDS
from sie_cpu.kernels import Kernels
from sie_cpu.structures import Encoder, Layer
from sie_core.contracts import OutOfDeviceMemory, device_errors

layers = (Layer * 1)()
encoder = Encoder(layers, 1, hidden=64, heads=1, key_heads=1, head_size=64, head_width=64, activation=1)
offsets = torch.arange(4_000_000) * 100  # each a chunk of the plan, which is more than the limit below leaves

def wanted(kernels, sequences):
    with device_errors():
        nothing = (None, None, None, None)  # no embeddings
        batch = (None, offsets.data_ptr(), None, sequences)
        return kernels.encode(ctypes.addressof(encoder), *nothing, *batch, None, None, 0, 1, None, None, 0)

for build in BUILDS:
    if build.library not in sys.argv:
        continue
    kernels = Kernels(build)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), hard))
    try:
        wanted(kernels, len(offsets) - 1)
    except OutOfDeviceMemory:
        print("refused")
    assert wanted(kernels, 10) > 0
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert wanted(kernels, len(offsets) - 1) > 0
    print("served")
"""


@pytest.mark.skipif(not RUNNABLE, reason="no build of the kernels runs here")
def test_a_refused_allocation_is_out_of_memory_and_no_end_of_the_process() -> None:
    command = [sys.executable, "-c", SCRIPT, *RUNNABLE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert (done.stdout.split(), done.returncode) == (["refused", "served"] * len(RUNNABLE), 0), done.stderr

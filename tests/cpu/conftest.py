"""Every build of the kernels that this processor runs, in turn, and the checkpoints of sie-pytorch's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sie_cpu import builds
from sie_cpu.builds import BUILDS, Build, processor_flags
from sie_cpu.plugin import sie_runners
from sie_pytorch.forward import BuiltRunner
from sie_pytorch.forward.choice import proof

from tests.pytorch.conftest import checkpoint
from tests.pytorch.forward.support import TOLERANCE, build

__all__ = ["checkpoint"]

RUNNABLE = [build for build in BUILDS if build.flags <= processor_flags()]
LIMIT = {"float32": TOLERANCE, "bfloat16": 0.75}
"""Of the standard deviation of the reference's states: the largest difference of all tokens.

bfloat16 has 8 bits, and weights of deviation 0.3 amplify: the padded model in bfloat16 differs by more.
"""


@pytest.fixture(params=RUNNABLE, ids=lambda build: build.library)
def kernel_build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Run on one build after the other, in its precision, whatever direction is lost in it."""
    chosen: Build = request.param
    monkeypatch.setattr(builds, "BUILDS", (chosen,))
    monkeypatch.setattr(proof, "LEAST_COSINE", -1)
    monkeypatch.setitem(proof.TOLERANCE, torch.bfloat16, 1.0)
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")
    return chosen


@pytest.fixture
def serve(kernel_build: Build) -> Callable[..., BuiltRunner]:
    """Build the runner of a checkpoint, in the build's precision."""

    def make(folder: Path, threads: int = 2, **arguments: Any) -> BuiltRunner:
        runner = build(folder, sie_runners(), precision=kernel_build.precision, threads=threads, **arguments)
        assert runner.info.name == "cpu-kernels", runner.info.reason
        assert runner.info.precision == kernel_build.precision
        return runner

    return make


@pytest.fixture
def limit(kernel_build: Build) -> float:
    return LIMIT[kernel_build.precision]

"""Processors with fewer instructions give the same numbers: AVX2 alone, AVX-512 with and without bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sie_cpu import builds
from sie_cpu.builds import BUILDS, Build, processor_flags
from sie_cpu.checkpoint.model import Described
from sie_cpu.families.claims import FEATURES
from sie_cpu.forward.running import CpuRunner
from sie_cpu.kernels import kernels_for

from sie_core.catalog import read_card
from sie_core.contracts import Processor
from tests.pytorch.conftest import checkpoint

__all__ = ["checkpoint"]

RUNNABLE = [each for each in BUILDS if each.flags <= processor_flags() and each.path.exists()]


@pytest.mark.parametrize("name", ["bert", "qwen3"])
@pytest.mark.parametrize("masked", RUNNABLE, ids=lambda build: build.name)
def test_a_processor_of_fewer_instructions_gives_the_states_of_the_plain_pass(
    masked: Build, name: str, checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "this_processor", lambda: Processor("one", masked.flags, "AuthenticAMD"))
    kernels = kernels_for(masked.precision)
    assert kernels.name == masked.name
    model = Described.read(read_card(checkpoint(name)), FEATURES)
    CpuRunner(model, kernels, 2).prove(expands_queries=False, judge=None)

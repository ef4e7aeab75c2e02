"""One model on machines of many kinds: without a compiler, with AVX2 alone, with one thread and with sixty-four."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sie_cpu import builds
from sie_cpu.builds import BUILDS, choose_build, processor_flags
from sie_cpu.plugin import sie_runners
from sie_pytorch.forward.specs import RUNNERS

from sie_core.contracts import Processor
from tests.pytorch.forward.support import TOLERANCE, build, deviation, forward, packed_batch

SPECS = (*sie_runners(), *RUNNERS)
AVX2 = next(each for each in BUILDS if each.isa == "avx2")
LENGTHS = (41, 7, 120, 1, 60)
SCRIPT = """
import json, sys
from pathlib import Path
from sie_cpu.plugin import sie_runners
from sie_pytorch.forward.specs import RUNNERS
from tests.pytorch.forward.support import build, forward, packed_batch

info = (runner := build(Path(sys.argv[1]), (*sie_runners(), *RUNNERS), precision="float16", threads=2)).info
states = forward(runner, packed_batch(json.loads(sys.argv[2])))
print(json.dumps([info.name, info.precision, info.notes["kernels"], info.notes["precision"], states.tolist()]))
"""


@pytest.mark.parametrize("name", ["bert", "qwen3", "embeddinggemma"])
@pytest.mark.parametrize("runner", ["cpu-kernels", "encoder-loop"])
def test_one_thread_and_sixty_four_give_equal_numbers(
    name: str, runner: str, checkpoint: Callable[[str], Path]
) -> None:
    if runner == "cpu-kernels" and not any(each.path.exists() for each in BUILDS):
        pytest.skip("no kernels are built here")
    specs = [spec for spec in SPECS if spec.name == runner]
    batch, threads = packed_batch(LENGTHS if name != "bert" else LENGTHS[:2]), torch.get_num_threads()
    try:
        found = []
        for count in (1, 64):
            torch.set_num_threads(count)
            built = build(checkpoint(name), specs, precision="float32", threads=count)
            assert built.info.name == runner, built.info.reason
            found.append(forward(built, batch))
    finally:
        torch.set_num_threads(threads)
    if runner == "cpu-kernels":
        assert torch.equal(*found)
    assert deviation(*found) <= TOLERANCE


def test_a_machine_without_a_compiler_says_what_serves_and_how_to_get_more(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = build(checkpoint("bert"), SPECS, precision="float32")
    monkeypatch.setattr(builds, "FOLDER", tmp_path)
    monkeypatch.setattr(builds, "processor_flags", lambda: AVX2.flags)
    there = build(checkpoint("bert"), SPECS, precision="float32")
    batch = packed_batch(LENGTHS[:2])
    assert deviation(forward(there, batch), forward(here, batch)) <= TOLERANCE
    info = there.info
    assert info.notes["runner"] == "encoder-loop"
    assert "not cpu-kernels: kernels_avx2.so was not built: install sie-cpu from a wheel" in info.notes["runner_reason"]


def test_a_processor_without_the_instructions_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "processor_flags", lambda: frozenset({"avx2"}))
    with pytest.raises(OSError, match=r"no build for float32 runs on this processor, which lacks fma$"):
        choose_build("float32")
    with pytest.raises(OSError, match="no build for bfloat16 runs on this processor, which lacks avx512bw, avx512dq"):
        choose_build("bfloat16")


@pytest.mark.parametrize(
    ("vendor", "variable", "expected"),
    [
        ("AuthenticAMD", "auto", "avx512_bf16"),
        ("AuthenticAMD", "avx512", "avx512_widening"),
        ("GenuineIntel", "auto", "avx512_widening"),
        ("GenuineIntel", "avx512_bf16", "avx512_bf16"),
    ],
)
def test_products_of_bfloat16_are_used_where_they_are_fast_or_asked_for(
    vendor: str, variable: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags = frozenset().union(*(each.flags for each in BUILDS))
    for each in BUILDS:
        (tmp_path / each.library).touch()
    monkeypatch.setattr(builds, "FOLDER", tmp_path)
    monkeypatch.setattr(builds, "this_processor", lambda: Processor("one", flags, vendor))
    monkeypatch.setenv("SIE_CPU_ISA", variable)
    assert choose_build("bfloat16").name == expected
    assert builds.fast_in() == {"bfloat16"}


@pytest.mark.skipif(
    not (AVX2.flags <= processor_flags() and AVX2.path.exists()), reason="no AVX2 here, or its kernels are not built"
)
def test_a_variable_narrows_the_instructions(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIE_CPU_ISA", "avx2")
    info = build(checkpoint("bert"), SPECS, precision="float32").info
    assert (info.notes["runner"], info.notes["kernels"]) == ("cpu-kernels", "avx2")
    with pytest.raises(OSError, match="SIE_CPU_ISA=avx2 has no build for bfloat16"):
        choose_build("bfloat16")


@pytest.mark.skipif(
    not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("unshare")),
    reason="only root can give a process another /proc/cpuinfo",
)
@pytest.mark.skipif(
    not (AVX2.flags <= processor_flags() and AVX2.path.exists()), reason="no AVX2 here, or its kernels are not built"
)
def test_a_machine_with_avx2_alone_serves_the_same_numbers(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    told = Path("/proc/cpuinfo").read_text()
    masked = tmp_path / "cpuinfo"
    masked.write_text(re.sub(r"\b(avx512|amx|avx_vnni)\w*", "", told))
    command = f'mount --bind {masked} /proc/cpuinfo && exec {sys.executable} -c "$SCRIPT" "$@"'
    # PyTorch and oneDNN ask the processor itself; these are their own switches.
    narrow = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    folder = checkpoint("qwen3")
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, "sh", str(folder), json.dumps(LENGTHS)],
        env={**os.environ, **narrow, "SCRIPT": SCRIPT, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    runner, precision, isa, note, states = json.loads(done.stdout.splitlines()[-1])
    assert (runner, precision, isa) == ("cpu-kernels", "float32", "avx2")
    assert note == "this processor has no native bfloat16"
    here = build(folder, SPECS, precision="float32")
    assert deviation(torch.tensor(states), forward(here, packed_batch(LENGTHS))) <= TOLERANCE

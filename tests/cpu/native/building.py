"""Compiles the fuzz of the kernels: for each build, with sanitizers, or for another processor."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
HOOK = ROOT / "plugins/sie-cpu/build_kernels.py"
SOURCES = ROOT / "plugins/sie-cpu/sie_cpu/native"
FUZZ = Path(__file__).parent / "fuzz.cpp"
COMPILE_S = 300.0
RUN_S = 600.0

SANITIZERS: Mapping[str, tuple[str, ...]] = {
    "addresses and undefined behaviour": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "threads": ("-fsanitize=thread",),
}
CROSS = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"


@dataclass(frozen=True, slots=True)
class Size:
    """How much one run of the fuzz does."""

    encoders: int = 25
    tokens: int = 200
    seed: int = 1


def flags_of(library: str, machine: str = "x86_64") -> tuple[str, ...]:
    """Give the flags that the distribution compiles a build with."""
    spec = importlib.util.spec_from_file_location("build_kernels", HOOK)
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    flags: tuple[str, ...] = hook.BUILDS[machine][library]
    return flags


def compile_fuzz(folder: Path, flags: Sequence[str], compiler: str = "") -> Path:
    """Compile the fuzz and return the program.

    Raises:
        subprocess.CalledProcessError: It does not compile; the compiler's words are above.
    """
    program = folder / "fuzz"
    compiler = compiler or os.environ.get("CXX") or shutil.which("c++") or "g++"
    common = ("-std=c++17", "-O1", "-g1", "-pthread", "-fno-omit-frame-pointer", f"-I{SOURCES}")
    subprocess.run([*compiler.split(), *common, *flags, str(FUZZ), "-o", str(program)], check=True, timeout=COMPILE_S)
    return program


def run_fuzz(program: Path, size: Size, emulator: Sequence[str] = ()) -> str:
    """Run the fuzz and return what it says.

    Raises:
        AssertionError: It found something; the message is all that it said.
    """
    # ThreadSanitizer does not find its way about memory that is laid out with more randomness than it knows.
    fixed = ("setarch", "--addr-no-randomize") if shutil.which("setarch") and not emulator else ()
    command = [*fixed, *emulator, str(program), *(str(number) for number in (size.encoders, size.tokens, size.seed))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()

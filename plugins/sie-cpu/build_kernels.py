"""Compiles the kernels when the distribution is installed or its wheel is built.

Without a C++ compiler, or on another kind of processor, nothing is compiled and nothing fails. The kernels are then not
offered, and sie-pytorch's own runners serve. Build a wheel for distribution with SIE_CPU_KERNELS=required: each missing
library then fails the build.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path(__file__).parent / "sie_cpu"
REQUIRED = "SIE_CPU_KERNELS"
SOURCE = PACKAGE / "native" / "encoder.cpp"
COMMON = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-pthread",
    "-fvisibility=hidden",
    # Vector code without branches: no trap or errno is looked at.
    "-fno-trapping-math",
    "-fno-math-errno",
    "-static-libstdc++",
    "-static-libgcc",
)
AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma")
X86 = {
    "kernels_avx512_bf16.so": ("-DSIE_BFLOAT16", *AVX512, "-mavx512bf16"),
    "kernels_avx512_widening.so": ("-DSIE_BFLOAT16_WEIGHTS", *AVX512),
    "kernels_avx512.so": AVX512,
    "kernels_avx2.so": ("-mavx2", "-mfma"),
}
BUILDS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": X86,
    "AMD64": X86,
    "aarch64": {"kernels_neon.so": ()},
}
"""Libraries and the flags they are compiled with, by processor."""


class KernelBuild(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's hook: runs before files are gathered, for wheels and editable installs alike."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel for this platform if anything was built.

        Raises:
            RuntimeError: A build is missing, and SIE_CPU_KERNELS says `required`.
        """
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        builds = BUILDS.get(platform.machine(), {}) if platform.system() == "Linux" else {}
        kept = builds if compiler else ()  # remaining ones are compiled again
        for other in set(PACKAGE.glob("kernels_*.so")) - {PACKAGE / library for library in kept}:
            other.unlink()
        if not builds:
            self.app.display_warning("sie-cpu has kernels for Linux on x86-64 and AArch64 only: none are built here")
        elif compiler is None:
            self.app.display_warning("sie-cpu found no C++ compiler (set CXX, or install g++): no kernels are built")
        else:
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda build: self._compile(compiler, *build), builds.items()))
        missing = [library for library in builds if not (PACKAGE / library).exists()]
        if os.environ.get(REQUIRED) == "required" and (missing or not builds):
            told = ", ".join(missing) or f"any for {platform.system()} on {platform.machine()}"
            raise RuntimeError(f"{REQUIRED}=required, and sie-cpu lacks kernels: {told}. The warnings above say why.")
        if len(missing) < len(builds):
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _compile(self, compiler: str, library: str, flags: tuple[str, ...]) -> None:
        """Compile one build and replace its old file atomically: a running server keeps what it has mapped."""
        target = PACKAGE / library
        fresh = target.with_suffix(".new")
        # CXX may hold more than a name, such as `ccache g++`.
        command = [*shlex.split(compiler), *COMMON, *flags, str(SOURCE), "-o", str(fresh)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            said = done.stderr if done.returncode else None
        except OSError as error:
            said = str(error)
        if said is None:
            fresh.replace(target)
            return
        fresh.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        self.app.display_warning(f"{library} was not built, {compiler} says:\n{said}")

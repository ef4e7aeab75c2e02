"""The builds of the kernels, and which of them this processor runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sie_core.contracts import PluginSetting, Processor, processor

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Build:
    """One build of the kernels: its precision, and the flags that a processor needs to run it."""

    isa: str
    precision: str
    flags: frozenset[str]
    widens: bool = False
    """Whether only weights are in `precision`, and upcast in registers: everything is computed in float32."""

    @property
    def name(self) -> str:
        """Name of the build."""
        return f"{self.isa}_widening" if self.widens else self.isa

    @property
    def library(self) -> str:
        """The file's name."""
        return f"kernels_{self.name}.so"

    @property
    def path(self) -> Path:
        """Path of the file, if it was built."""
        return FOLDER / self.library


_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
_PRODUCT = "avx512_bf16"
"""The flag of the product of bfloat16."""
BUILDS = (
    Build("avx512_bf16", "bfloat16", _AVX512 | {_PRODUCT}),
    Build("avx512", "bfloat16", _AVX512, widens=True),
    Build("avx512", "float32", _AVX512),
    Build("avx2", "float32", frozenset({"avx2", "fma"})),
    Build("neon", "float32", frozenset({"asimd"})),
)
"""Fastest first in each precision, on a processor that has them all at full speed."""


AUTO = "auto"
ISA = PluginSetting(
    "SIE_CPU_ISA",
    AUTO,
    "The compiled kernels of sie-cpu use this instruction set: `avx512_bf16`, `avx512`, `avx2`, `neon`, or `auto`, the "
    "fastest that the processor has.",
    allowed=(AUTO, *(build.isa for build in BUILDS)),
)


@cache
def this_processor() -> Processor:
    """Read the properties of this processor."""
    return processor()


def processor_flags() -> frozenset[str]:
    """Return the processor's feature flags; empty if the system does not report them."""
    return this_processor().flags


def installed() -> str:
    """Identify the built libraries by name, size in bytes and modification time."""
    paths = [build.path for build in BUILDS if build.path.exists()]
    return ", ".join(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in paths) or "none"


def choose_build(precision: str) -> Build:
    """Find the fastest build that computes in `precision`, runs on this processor and is allowed by `SIE_CPU_ISA`.

    Raises:
        OSError: None was built, or none may run here; the message says why.
    """
    wanted = ISA.value()
    allowed = [build for build in BUILDS if build.precision == precision and wanted in (AUTO, build.isa)]
    if not allowed:
        raise OSError(f"{ISA.variable}={wanted} has no build for {precision}")
    fitting = [build for build in allowed if build.flags <= processor_flags()]
    fitting.sort(key=lambda build: _PRODUCT in build.flags - this_processor().fast_in_bfloat16)
    if not fitting:
        nearest = min(allowed, key=lambda build: len(build.flags - processor_flags()))
        lacking = sorted(nearest.flags - processor_flags())
        raise OSError(f"no build for {precision} runs on this processor, which lacks {', '.join(lacking)}")
    built = [build for build in fitting if build.path.exists()]
    if not built:
        raise OSError(
            f"{fitting[0].library} was not built: install sie-cpu from a wheel, or again where there is a C++ compiler"
        )
    return built[0]


def fast_in() -> frozenset[str]:
    """Name the half precisions that the kernels compute on this processor; none of them is slow."""
    try:
        return frozenset({choose_build("bfloat16").precision})
    except (OSError, ValueError):  # a variable of another value than is allowed stops the start elsewhere
        return frozenset()

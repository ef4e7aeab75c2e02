"""The processor of this machine, as the kernel tells of it."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Processor:
    """One processor; all of a machine are taken to be alike."""

    name: str
    """Its model, or where the kernel names none the architecture."""
    flags: frozenset[str]
    """What it can do, in the kernel's words: `avx2`, `avx512_bf16`, on Arm `bf16`. Empty where it tells none."""
    vendor: str = ""
    """Who designed it, in the kernel's words: `GenuineIntel`, `AuthenticAMD`. Empty where it names none, as on Arm."""

    @property
    def fast_in_bfloat16(self) -> frozenset[str]:
        """Those of its flags that stand for a matrix product of bfloat16 faster than that of float32.

        Intel's processors start AVX-512's at a quarter of the rate of float32's, of which it does the work of two.
        """
        return self.flags & ({"amx_bf16", "bf16"} | ({"avx512_bf16"} if self.vendor == "AuthenticAMD" else set()))


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Processor:
    """Read what the kernel tells of the first processor."""
    fields: dict[str, str] = {}
    try:
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    named = fields.get("model name") or platform.processor() or platform.machine()
    flags = frozenset(fields.get("flags", fields.get("Features", "")).split())
    return Processor(named, flags, fields.get("vendor_id", ""))

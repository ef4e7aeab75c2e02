"""The CPU of this machine, as reported by the kernel."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Processor:
    """One processor; all of a machine are taken to be alike."""

    name: str
    """Model name, or the architecture if the kernel gives none."""
    flags: frozenset[str]
    """Feature flags in the kernel's spelling: `avx2`, `avx512_bf16`, on Arm `bf16`.

    Empty if the kernel reports none.
    """
    vendor: str = ""
    """Vendor in the kernel's spelling: `GenuineIntel`, `AuthenticAMD`. Empty if the kernel reports none, as on Arm."""

    @property
    def fast_in_bfloat16(self) -> frozenset[str]:
        """Return the flags of matrix products that are faster in bfloat16 than in float32.

        Intel's CPUs issue the bfloat16 product of AVX-512 at a quarter of the rate of float32's, and each does the work
        of two.
        """
        return self.flags & ({"amx_bf16", "bf16"} | ({"avx512_bf16"} if self.vendor == "AuthenticAMD" else set()))


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Processor:
    """Read what the kernel reports about the first processor."""
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

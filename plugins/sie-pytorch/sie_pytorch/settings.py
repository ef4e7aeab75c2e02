"""The plugin's own environment variables."""

from __future__ import annotations

from sie_core.contracts import PluginSetting

AUTO, ALWAYS = "auto", "always"
CPU_BFLOAT16 = PluginSetting(
    "SIE_PYTORCH_CPU_BFLOAT16",
    AUTO,
    "Where half precision is asked for, a CPU computes in bfloat16: with `auto`, one that multiplies it faster than "
    "float32; with `always`, every one, for half the memory.",
    allowed=(AUTO, ALWAYS),
)

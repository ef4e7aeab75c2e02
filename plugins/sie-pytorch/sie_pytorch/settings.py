"""The plugin's own environment variables."""

from __future__ import annotations

from sie_core.contracts import PluginSetting

AUTO, ALWAYS = "auto", "always"
CPU_BFLOAT16 = PluginSetting(
    "SIE_PYTORCH_CPU_BFLOAT16",
    AUTO,
    "Which CPUs compute in bfloat16 where half precision is asked for: `auto`, those that multiply it faster than "
    "float32; `always`, every one, for half the memory.",
    (AUTO, ALWAYS),
)

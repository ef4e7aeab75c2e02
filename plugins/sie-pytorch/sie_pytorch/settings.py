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
CUDA_TRIAL = PluginSetting(
    "SIE_CUDA_TRIAL",
    "off",
    "What no GPU has confirmed yet. With `copies`, a batch is sent in one copy, and pinned memory of results is used "
    "again. With `splade`, SPLADE pools all texts at once, and the device's thread does not wait for its entries. "
    "`all` turns on both.",
    allowed=("off", "copies", "splade", "all"),
)


def tried(what: str) -> bool:
    """Whether `SIE_CUDA_TRIAL` turns `what` on."""
    return CUDA_TRIAL.value() in (what, "all")

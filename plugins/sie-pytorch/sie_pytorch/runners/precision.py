"""Loading a model in the precision asked for, where the device is fast in it and the numbers hold.

It knows processors and tensors, no architecture and no runner.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sie_pytorch.runners.checkpoint import load_model
from sie_pytorch.runners.positions import position_limit
from sie_pytorch.runners.proof import make_probe, states_alone

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Precisions by their names in the settings."""
LEAST_COSINE = 0.9995
"""What the mean state of a probe sequence must keep of its float32 direction."""
NATIVE_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Processor flags that stand for a fast bfloat16 matrix product (the last one is Arm's)."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in the precision it is served in, and why it is not the one asked for."""

    model: Any
    dtype: torch.dtype
    note: str | None = None


def load_in_precision(
    folder: Path, precision: str, device: torch.device, *, native_bfloat16: bool | None = None
) -> LoadedModel:
    """Load a model in `precision`, or in the nearest one that is fast on the device and right.

    On a CPU half precision means bfloat16, and only where the processor multiplies it natively and probe sequences keep
    their direction; float32 otherwise. On an accelerator the precision is taken as asked, and bfloat16 stands in for a
    float16 in which the model overflows.

    Args:
        folder: The checkpoint.
        precision: A key of `DTYPES`.
        device: Where to load it.
        native_bfloat16: Whether a CPU is fast in bfloat16; None asks the processor.

    Raises:
        ModelLoadError: The checkpoint cannot be loaded.
    """
    asked = DTYPES[precision]
    if asked is torch.float32:
        return LoadedModel(load_model(folder, asked, device), asked)
    if device.type != "cpu":
        return _on_accelerator(folder, asked, device)
    if not (has_native_bfloat16() if native_bfloat16 is None else native_bfloat16):
        note = f"float32 instead of {precision}: this processor has no native bfloat16"
        return LoadedModel(load_model(folder, torch.float32, device), torch.float32, note)
    return _on_native_cpu(folder, precision, device)


def _on_native_cpu(folder: Path, precision: str, device: torch.device) -> LoadedModel:
    """Keep bfloat16 if probe sequences keep their direction."""
    expected, lengths = _probe_states(load_model(folder, torch.float32, device), device)
    model = load_model(folder, torch.bfloat16, device)
    cosine = least_cosine(_probe_states(model, device)[0], expected, lengths)
    if cosine >= LEAST_COSINE:
        note = None if precision == "bfloat16" else f"bfloat16 instead of {precision}: cosine to float32 {cosine:.5f}"
        return LoadedModel(model, torch.bfloat16, note)
    note = f"float32 instead of {precision}: in bfloat16 the cosine to float32 falls to {cosine:.5f}"
    return LoadedModel(load_model(folder, torch.float32, device), torch.float32, note)


def _on_accelerator(folder: Path, asked: torch.dtype, device: torch.device) -> LoadedModel:
    """Take the precision asked for, unless float16 overflows."""
    model = load_model(folder, asked, device)
    if asked is torch.float16 and not bool(_probe_states(model, device)[0].isfinite().all()):
        note = "bfloat16 instead of float16: the model overflows in float16"
        return LoadedModel(load_model(folder, torch.bfloat16, device), torch.bfloat16, note)
    return LoadedModel(model, asked)


def _probe_states(model: Any, device: torch.device) -> tuple[torch.Tensor, list[int]]:
    """Run the probe sequences; return their states and lengths."""
    probe = make_probe(model, position_limit(model), device)
    return states_alone(model, probe), [place.stop - place.start for place in probe.sequences()]


def least_cosine(states: torch.Tensor, expected: torch.Tensor, lengths: list[int]) -> float:
    """Compare the mean states of each sequence; return the smallest cosine, NaN where either holds one."""
    parts = (torch.split(flat.double(), lengths) for flat in (states, expected))
    pairs = zip(*parts, strict=True)
    cosines = [torch.cosine_similarity(part.mean(0), other.mean(0), dim=0) for part, other in pairs]
    return float(torch.stack(cosines).min())


def has_native_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this processor multiplies bfloat16 matrices natively; False where it does not say."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return not NATIVE_FLAGS.isdisjoint(value.split())
    return False

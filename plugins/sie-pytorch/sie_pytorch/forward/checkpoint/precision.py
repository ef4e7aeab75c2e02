"""The precisions in which a model is tried, and the tolerated error of states in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from sie_core.contracts import Processor, processor
from sie_pytorch.settings import ALWAYS, CPU_BFLOAT16

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Precisions by their names in the settings."""
LEAST_COSINE = 0.9995
"""Least cosine between the mean state of a probe sequence and its float32 value."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}
"""Largest relative error of a token's states, by the precision computed in."""


class PrecisionLost(Exception):
    """A model's numbers do not survive the rounding of a precision; the message says why."""


class Overflow(PrecisionLost):
    """They are beyond the range of float16; bfloat16, which rounds more, has the range of float32."""


@dataclass(frozen=True, slots=True)
class Precision:
    """A precision to load and run a model in."""

    weights: torch.dtype
    """Precision in which the weights are loaded."""
    compute: torch.dtype
    """Precision of the runner: on a CPU, half precision is judged against float32 weights, and cast afterwards."""
    note: str | None = None
    """Why it is not the requested one."""
    after_overflow: bool = False
    """Whether it is tried only if the one before overflowed."""
    runners: frozenset[str] | None = None
    """Names of the runners that may serve in it; None: every one."""


def precisions(asked: str, device: torch.device, fast_runners: frozenset[str] = frozenset()) -> Iterator[Precision]:
    """Yield the precisions to try for a model, best first; the last one is float32.

    On a CPU, half precision means bfloat16. It is tried if the processor multiplies it faster than float32, if a runner
    is fast in it all the same, or if the settings insist. On an accelerator the requested precision is tried, and
    bfloat16 after a float16 in which the model overflows.

    Args:
        asked: A key of `DTYPES`.
        device: The device to run on.
        fast_runners: Names of the runners that are fast in bfloat16 on every CPU.
    """
    dtype, single, half = DTYPES[asked], torch.float32, torch.bfloat16
    if dtype is single:
        yield Precision(single, single)
    elif device.type != "cpu":
        yield Precision(dtype, dtype)
        if dtype is torch.float16:
            yield Precision(half, half, after_overflow=True)
        yield Precision(single, single)
    else:
        reason = why_not_bfloat16()
        if reason is None or fast_runners:
            note = None if dtype is half else "half precision on a CPU is bfloat16"
            yield Precision(single, half, note, runners=fast_runners if reason else None)
        yield Precision(single, single, reason)


def name_of(dtype: torch.dtype) -> str:
    """Name a precision as the settings do."""
    return str(dtype).removeprefix("torch.")


def least_cosine(states: torch.Tensor, expected: torch.Tensor, lengths: list[int]) -> float:
    """Compare the mean states of each sequence; return the smallest cosine, NaN if either holds one."""
    parts = (torch.split(flat.double(), lengths) for flat in (states, expected))
    pairs = zip(*parts, strict=True)
    cosines = [torch.cosine_similarity(part.mean(0), other.mean(0), dim=0) for part, other in pairs]
    return float(torch.stack(cosines).min())


def relative_error(states: torch.Tensor, expected: torch.Tensor) -> float:
    """Measure the largest ‖states - expected‖ / ‖expected‖ of a token; NaN if either holds one."""
    difference = (states.double() - expected.double()).norm(dim=-1)
    return float((difference / expected.double().norm(dim=-1).clamp(min=1e-12)).max())


def why_not_bfloat16(told: Processor | None = None) -> str | None:
    """Explain why a CPU must not compute in bfloat16; None if it may.

    The processor's own report decides, never a measurement: numbers do not change from start to start.

    Args:
        told: The processor; None means this machine's.
    """
    told = processor() if told is None else told
    if CPU_BFLOAT16.value() == ALWAYS or told.fast_in_bfloat16:
        return None
    if "avx512_bf16" in told.flags:
        return "this processor multiplies bfloat16 at half the rate of float32"
    return "this processor has no native bfloat16"

"""Rotary positions (arXiv 2104.09864): the frequencies that a config states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("default", "linear", "llama3")
"""Kinds of frequencies that do not depend on the length of a text."""


def frequencies(stated: Mapping[str, Any], theta: float, head_size: int, longest: int) -> NDArray[np.float32] | None:
    """Compute the frequency of each pair of elements: float32 `[turned // 2]`; None for another kind than `KINDS`.

    Args:
        stated: One set of a config's `rope_parameters`, or its older `rope_scaling`.
        theta: The base if they state none.
        head_size: Elements of a head.
        longest: The config's `max_position_embeddings`.
    """
    kind = stated.get("rope_type") or stated.get("type") or "default"
    if kind not in KINDS:
        return None
    turned = int(head_size * float(stated.get("partial_rotary_factor") or 1.0))
    exponents = np.arange(0, turned, 2, dtype=np.float32) / np.float32(turned)
    found = (1.0 / np.float32(stated.get("rope_theta") or theta) ** exponents).astype(np.float32)
    if kind == "linear":
        return found / np.float32(stated["factor"])
    return found if kind == "default" else _of_llama3(found, stated, longest)


def _of_llama3(found: NDArray[np.float32], stated: Mapping[str, Any], longest: int) -> NDArray[np.float32]:
    """Divide low frequencies by a factor, keep high ones, and interpolate those between."""
    factor, low, high = (float(stated[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    length = float(stated.get("original_max_position_embeddings") or longest)
    turns = length * found.astype(np.float64) / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return ((1 - share) * found / factor + share * found).astype(np.float32)

"""One thread budget for everything that is measured."""

from __future__ import annotations

import os

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


OWN = ("SIE_", "INFINITY_", "OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "RAYON_", "TOKENIZERS_")
"""What each server chooses for itself: a caller's values would reach all of them."""
BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Who sets it has every start compile the sources again."""


def environment(threads: int, **others: str) -> dict[str, str]:
    """Make a child's environment: the budget, no network, no telemetry."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith((*OWN, BYTECODE))}
    offline = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return {**kept, **dict.fromkeys(VARIABLES, str(threads)), **offline, **others}

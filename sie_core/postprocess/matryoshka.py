"""Shortens a dense vector to a Matryoshka size.

Kusupati et al., "Matryoshka Representation Learning" (arXiv 2205.13147): the first dimensions are an embedding
themselves. As in sentence-transformers' `encode(truncate_dim=…, normalize_embeddings=…)`, the cut comes after the
model's own normalisation, and a vector of unit length is brought back to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LEAST_NORM = 1e-12
"""The norm below which `torch.nn.functional.normalize` divides by this instead."""


def shorten(dense: NDArray[np.float32], dimensions: int, normalized: bool) -> NDArray[np.float32]:
    """Keep the first `dimensions` of a vector of shape (dims,); normalise the result again if the vector was
    normalised.
    """
    kept = dense[:dimensions]
    if not normalized:
        return kept
    norm = np.float32(max(float(np.linalg.norm(kept)), _LEAST_NORM))
    return np.divide(kept, norm, dtype=np.float32)

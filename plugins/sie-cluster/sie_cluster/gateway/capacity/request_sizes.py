"""How long a request takes by its size, as others of about that size did: short ones teach nothing about long ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

Point = tuple[float, float]
"""The size of a request, and the seconds that one of it takes."""

# Times the largest measured size up to which requests take so many times as long.
ALIKE: Final = 8.0


def request_s(points: Sequence[Point], size: float) -> float:
    """Return the seconds of a request at least, by measured ones; 0 where there are none.

    Between two sizes the seconds are interpolated. A size beyond `ALIKE` times the largest counts as that: it takes no
    less, and more was not measured.

    Args:
        points: The measured sizes, in their order.
        size: That of the request.
    """
    if not points:
        return 0.0
    for (small, small_s), (large, large_s) in pairwise(points):
        if small < size <= large:
            return small_s + (large_s - small_s) * (size - small) / (large - small)
    nearest, seconds = points[0] if size <= points[0][0] else points[-1]
    return seconds * min(size / nearest, ALIKE)

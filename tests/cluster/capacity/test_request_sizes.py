"""How long requests take is told by measured ones of about their size, and by no shorter ones."""

from __future__ import annotations

import pytest
from sie_cluster.gateway.capacity.request_sizes import ALIKE, request_s


@pytest.mark.parametrize(
    ("size", "seconds"),
    [(5, 0.5), (10, 1.0), (55, 1.5), (100, 2.0), (200, 4.0), (100 * ALIKE, 2.0 * ALIKE), (1e6, 2.0 * ALIKE)],
)
def test_seconds_grow_evenly_between_sizes_and_beyond_them_only_as_far_as_requests_are_alike(
    size: float, seconds: float
) -> None:
    assert request_s([(10, 1.0), (100, 2.0)], size) == pytest.approx(seconds)


def test_where_nothing_was_measured_nothing_takes_time() -> None:
    assert request_s([], 10) == 0

"""What a sidecar tells of its machine."""

from __future__ import annotations

from typing import Any

import pytest
from sie_cluster.settings import ClusterSettings


@pytest.mark.parametrize(
    ("chosen", "profile"),
    [({}, None), ({"pool": "L4"}, "l4"), ({"pool": "L4", "machine_profile": "L4-Spot"}, "l4-spot")],
)
def test_a_worker_has_the_profile_of_its_pool_unless_it_names_one(chosen: dict[str, Any], profile: str | None) -> None:
    assert ClusterSettings(**chosen).own_profile == profile

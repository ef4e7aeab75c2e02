"""What a sidecar tells of its machine."""

from __future__ import annotations

import pytest
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.reporting import own_report


@pytest.mark.parametrize(
    ("chosen", "profile"),
    [({}, "any"), ({"pool": "L4"}, "l4"), ({"pool": "L4", "machine_profile": "L4-Spot"}, "l4-spot")],
)
def test_a_worker_has_the_profile_of_its_pool_unless_it_names_one(chosen: dict[str, str], profile: str) -> None:
    assert own_report(ClusterSettings(**chosen), "w1").profile == profile

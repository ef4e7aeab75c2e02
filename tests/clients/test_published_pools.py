"""Resource pools with the published `sie-sdk` 0.10.1, unchanged, against a cluster."""

from __future__ import annotations

import pytest

from tests.conftest import run_cluster

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]
SETTINGS = {"SIE_MACHINE_PROFILE": "l4", "SIE_GATEWAY_CONFIGURED_GPUS": "l4"}


def test_the_published_client_leases_a_worker_and_survives_what_is_refused(published_sdk, tmp_path):
    with run_cluster(tmp_path, "--workers", "1", env=SETTINGS) as server:
        told = published_sdk.run("published_pools.py", url=server.url, model="sie-fake/embedder")
    assert told["created"] is None
    assert told["got"]["status"]["state"] == "active"
    assert [each["name"] for each in told["got"]["status"]["assigned_workers"]] == ["worker-1"]
    assert told["encoded"] > 0
    assert "h100" in told["refused"]["message"]
    assert "default" in told["default"]["message"]
    assert (told["deleted"], told["again"], told["gone"]) == (True, False, None)

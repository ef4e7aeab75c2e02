"""Published clients, unchanged, while a cluster has no worker: each is told so by its own error, or waits for one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.processes.zero import BOUND_S, metric, worker
from tests.conftest import run_cluster
from tests.soak.faults.cluster import until

MODEL, DIMS = "sie-fake/embedder", 32
EMBED = {"model": MODEL, "input": "theirs"}
COHERE = {"model": MODEL, "texts": ["theirs"], "input_type": "search_query", "embedding_types": ["float"]}
MANY = 100
"""Tries: more than any start of a worker takes."""
pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


def test_each_client_is_told_that_no_worker_is_there_or_waits_for_one(
    published_sdk, openai_clients, other_apis, tmp_path
):
    cohere = [["2", COHERE | {"request_options": {"max_retries": tries}}] for tries in (0, MANY)]
    openai = [EMBED, EMBED | {"retries": MANY}]
    with (
        run_cluster(tmp_path, "--workers", "0", env={"SIE_MODEL_WAIT_S": "1"}) as server,
        ThreadPoolExecutor(3) as threads,
    ):
        calls = [
            threads.submit(published_sdk.run, "published_waiting.py", url=server.url, model=MODEL),
            threads.submit(openai_clients.run, "openai_embeddings.py", url=server.url, calls=openai),
            threads.submit(other_apis.run, "cohere_embed.py", url=server.url, calls=cohere),
        ]
        # Each asks once for its error, and once more at least.
        until(lambda: metric(server.url, "pending_demand") >= 6, "the demand of all clients", BOUND_S)
        assert not any(call.done() for call in calls)
        with worker(tmp_path):
            published, openai_s, cohere_s = [call.result(BOUND_S) for call in calls]
            assert metric(server.url, "pending_demand") == 0
    assert published == {"refused": {"raised": "ProvisioningError", "retry_after": 5.0}, "dims": DIMS}
    refused, answered = openai_s["answers"]
    assert (refused["raised"], refused["status"], refused["code"]) == ("InternalServerError", 503, "PROVISIONING")
    assert len(answered["vectors"][0]) == DIMS
    refused, answered = cohere_s
    assert (refused["raised"], refused["status"]) == ("ServiceUnavailableError", 503)
    assert "No worker" in refused["body"]["message"]
    assert len(answered["embeddings"]["float"][0]) == DIMS

"""What a sidecar wants loaded before it pulls: the adapter process loads it, and says so."""

from __future__ import annotations

from sie_cluster.messages.wishes import Wish

from tests.cluster.in_process import Cluster

MODEL = "sie-fake/dense"


async def test_a_model_that_the_sidecar_wants_is_loaded_without_work_for_it(cluster: Cluster) -> None:
    cluster.sidecar.link.load(Wish("sie-fake/none"))
    cluster.sidecar.link.load(Wish(MODEL))
    await cluster.until(lambda: cluster.engine.model(MODEL).state == "loaded")
    cluster.intake.tell()
    await cluster.until(lambda: MODEL in cluster.sidecar.report().models)
    assert (await cluster.client.get("/healthz")).status_code == 200

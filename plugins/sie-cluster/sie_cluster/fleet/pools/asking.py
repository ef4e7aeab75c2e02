"""The pools as a gateway tells them, for a sidecar that may not read the broker's store."""

from __future__ import annotations

from typing import Any

import orjson

from sie_cluster.fleet.pools.pools import Assignment, Pool, Pools
from sie_cluster.programs.asking import Asked, Away
from sie_cluster.queue.subjects import DEFAULT_RESOURCE_POOL
from sie_cluster.settings import ClusterSettings
from sie_core.auth import client_token
from sie_core.contracts import PoolSpec, PoolWorker

ANSWER_S = 5.0
MOST_BYTES = 4 << 20
"""Of what a gateway answers."""


class AskedPools(Asked):
    """A gateway that is asked, with the token that the settings have."""

    def __init__(self, url: str, settings: ClusterSettings) -> None:
        super().__init__(url, client_token(settings), "SIE_AUTH_TOKEN")

    async def read(self) -> Pools:
        """Ask for them.

        Raises:
            Away: No answer, or none that can be used.
        """
        try:
            return read_listing(orjson.loads(await self.get("/v1/pools", ANSWER_S, MOST_BYTES)))
        except (ValueError, KeyError, TypeError) as error:
            raise Away(f"{self.url}/v1/pools answered something else than pools: {error}") from None


def read_listing(told: dict[str, Any]) -> Pools:
    """Read what a gateway lists, as far as a worker needs it: leases are the gateway's to end."""
    pools: dict[str, Pool] = {}
    workers: dict[str, Assignment] = {}
    for row in told["pools"]:
        name, status = str(row["name"]), row["status"]
        if name == DEFAULT_RESOURCE_POOL or status["state"] == "expired":
            continue
        spec = PoolSpec(pinned_models=tuple(map(str, row["spec"]["pinned_models"])))
        pools[name] = Pool(name, spec, float(status["created_at"]))
        for each in status["assigned_workers"]:
            worker = PoolWorker(str(each["name"]), str(each["gpu"]), str(each["bundle"]), queue_pool="")
            workers[worker.name] = Assignment(name, worker)
    return Pools(pools, workers)

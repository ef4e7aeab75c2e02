"""The pools as a gateway tells them, for a sidecar that may not read the broker's store."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import httpx
import orjson

from sie_cluster.fleet.pools.pools import Assignment, Pool, Pools
from sie_cluster.queue.subjects import DEFAULT_RESOURCE_POOL
from sie_cluster.settings import ClusterSettings
from sie_core.auth import client_token
from sie_core.contracts import PoolSpec, PoolWorker

ANSWER_S = 5.0
MOST_BYTES = 4 << 20
"""Of what a gateway answers."""


class PoolsAway(Exception):
    """Pools cannot be read just now; the message says why and holds no token."""


class AskedPools:
    """A gateway that is asked, with the token that the settings have."""

    def __init__(self, url: str, settings: ClusterSettings) -> None:
        self._where = f"{url.rstrip('/')}/v1/pools"
        token = client_token(settings)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._client = httpx.AsyncClient(
            headers={"Accept": "application/json", "Accept-Encoding": "identity", **headers},
            verify=ssl.create_default_context(),
            trust_env=False,
            follow_redirects=False,
            timeout=ANSWER_S,
        )

    async def read(self) -> Pools:
        """Ask for them.

        Raises:
            PoolsAway: No answer, or none that can be used.
        """
        try:
            async with asyncio.timeout(ANSWER_S), self._client.stream("GET", self._where) as response:
                body = bytearray()
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise PoolsAway(f"{self._where} answered more than {MOST_BYTES} bytes")
            if response.status_code != 200:
                raise PoolsAway(f"{self._where} answered {response.status_code}")
            return read_listing(orjson.loads(body))
        except TimeoutError:
            raise PoolsAway(f"{self._where} did not answer within {ANSWER_S:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise PoolsAway(f"{self._where} cannot be reached: {type(error).__name__}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise PoolsAway(f"{self._where} answered something else than pools: {error}") from None


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

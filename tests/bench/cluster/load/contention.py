"""`python -m tests.bench.cluster.load.contention`: two gateways create, renew and delete resource pools at once.

Checks with each look at either gateway that no worker is in two pools, and at the end that none is lost.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx

from tests.cluster.placement.fleet import Fleet, fleet
from tests.soak.faults.cluster import BOUND_S, until

WORKERS, POOLS, CLIENTS = ("w1", "w2", "w3"), ("p", "q", "r"), 4


def contend(running: Fleet, urls: tuple[str, str], seconds: float) -> tuple[Counter[str], list[str]]:
    """Have clients of both gateways make and end the same pools; give what they were told, and what was wrong."""
    told, wrong, end = Counter[str](), list[str](), time.monotonic() + seconds

    def client(number: int) -> None:
        chance = random.Random(number)
        with httpx.Client(base_url=urls[number % 2], timeout=BOUND_S) as client:
            while time.monotonic() < end:
                pool, what = chance.choice(POOLS), chance.random()
                if what < 0.5:
                    body = {"name": pool, "minimum_worker_count": chance.randint(1, 3)}
                    reply = client.post("/v1/pools", json=body)
                elif what < 0.7:
                    reply = client.post(f"/v1/pools/{pool}/renew")
                else:
                    reply = client.delete(f"/v1/pools/{pool}")
                told[f"{reply.request.method} {reply.status_code}"] += 1

    def watch(url: str) -> None:
        with httpx.Client(base_url=url, timeout=BOUND_S) as client:
            while time.monotonic() < end:
                pools = client.get("/v1/pools").json()["pools"]
                of = Counter(each["name"] for pool in pools for each in pool["status"]["assigned_workers"])
                if set(of.values()) - {1} or set(of) - set(WORKERS):
                    wrong.append(f"{url}: {of}")
                told["looks"] += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    threads += [threading.Thread(target=watch, args=(url,)) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + BOUND_S)
    return told, wrong


def freed(url: str) -> list[str]:
    """Name the workers that belong to nobody."""
    (default,) = (each for each in httpx.get(f"{url}/v1/pools").json()["pools"] if each["name"] == "default")
    return sorted(each["name"] for each in default["status"]["assigned_workers"])


def main() -> None:
    """Run it."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as name, fleet(Path(name)) as running, running.another_gateway() as second:
        running.add(*WORKERS)
        urls = running.url, second
        until(lambda: len(freed(second)) == len(WORKERS), "the workers at the second gateway")
        told, wrong = contend(running, urls, seconds)
        for pool in POOLS:
            httpx.delete(f"{second}/v1/pools/{pool}")
        until(lambda: all(freed(url) == sorted(WORKERS) for url in urls), "every worker free")
        print(f"answers               {dict(sorted(told.items()))}")
        print(f"workers in two pools  {len(wrong)} {wrong[:3]}")
        print(f"workers free at last  {freed(running.url)}")


if __name__ == "__main__":
    main()

"""`python -m tests.bench.cluster.load.growth`: a model's demand grows to three workers' worth, and falls again.

Prints how long copies took to follow, how many there were, and the p95 of another model's calls over that before.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

import httpx

from tests.bench.cluster.load.overload import Seen, request
from tests.cluster.placement.fleet import Fleet, fleet
from tests.soak.faults.cluster import until

HOT, OTHER, LOAD_S, MOST_S = "bench/hot", "bench/other", 2.0, 100.0
"""Demand lasts longer than it takes until a copy that has little to do rests."""
WORKERS = ("w1", "w2", "w3", "w4")
CLIENTS, PAUSE_S, ROUND_S, REST_S = 160, 0.05, 10.0, 90.0
"""Clients of the hot model: of each batch a worker runs up to 64, so that three workers have as many as they batch."""
RUN_MS = 200.0
"""Of the hot model: a run takes as long however many texts it has."""
HOT_CALL, OTHER_CALL = (request(model, json.dumps({"items": [{"text": "a text"}]})) for model in (HOT, OTHER))


def config(model: str, run_ms: float) -> str:
    """Write the config of a model that takes a while to load."""
    return (
        f"sie_id: {model}\npackage_backed: true\ntasks: {{encode: {{dense: {{dim: 8}}}}}}\nprofiles:\n  default:\n"
        f"    adapter_path: fake\n    max_batch_tokens: 256\n    adapter_options:\n"
        f"      runtime: {{latency_ms: {run_ms}}}\n      loadtime: {{load_s: {LOAD_S}, journal: journal}}\n"
    )


def has(running: Fleet, model: str) -> list[str]:
    """Name the workers that have a model loaded."""
    told = running.client.get(f"{running.url}/health").json()["workers"]
    return sorted(each["name"] for each in told if model in each["loaded_models"])


async def honest(url: str, seconds: float) -> float:
    """Give the p95 of the other model's calls, in milliseconds."""
    seen, end = Seen(), time.monotonic() + seconds
    while time.monotonic() < end:
        await seen.ask(url, OTHER_CALL)
        await asyncio.sleep(PAUSE_S)
    return seen.p95_ms(lambda said: said == "200")


async def grow(running: Fleet) -> tuple[list[float], float, float, Seen, int]:
    """Keep many clients at the hot model; give when each copy was there, the p95 of the other model meanwhile and then,
    the answers, and how many workers run it at last."""
    seen, began, there = Seen(), time.monotonic(), list[float]()
    ended = asyncio.Event()

    async def client() -> None:
        while not ended.is_set():
            await seen.ask(running.url, HOT_CALL)

    clients = [asyncio.create_task(client()) for _ in range(CLIENTS)]
    meanwhile = asyncio.create_task(honest(running.url, MOST_S))
    while time.monotonic() < began + MOST_S:
        for _ in range(len(await asyncio.to_thread(has, running, HOT)) - len(there)):
            there.append(time.monotonic() - began)
        await asyncio.sleep(0.2)
    beside = await meanwhile
    before = {name: len(running.events(name)) for name in running.workers}
    after = await honest(running.url, ROUND_S)
    at_last = ran_since(running, HOT, before)
    ended.set()
    await asyncio.gather(*clients)
    return there, beside, after, seen, at_last


def pulling(running: Fleet, model: str) -> int:
    """Count the workers that run a model for one client."""
    before = {name: len(running.events(name)) for name in running.workers}
    end = time.monotonic() + 3.0
    while time.monotonic() < end:
        running.ask(model)
    return ran_since(running, model, before)


def ran_since(running: Fleet, model: str, before: dict[str, int]) -> int:
    """Count the workers that ran a model since their journals had so many events."""
    ran = {name for name in running.workers for event in running.events(name)[before[name] :] if event.model == model}
    return len(ran)


def main() -> None:
    """Run it."""
    with tempfile.TemporaryDirectory() as name, fleet(Path(name)) as running:
        for model, run_ms in ((HOT, RUN_MS), (OTHER, 5.0)):
            (running.folder / f"models/{model.replace('/', '-')}.yaml").write_text(config(model, run_ms))
        running.add(*WORKERS, SIE_BATCHER_MAX_BATCH_REQUESTS="8", SIE_MAX_CONCURRENT_BATCHES="2")
        until(lambda: httpx.get(f"{running.url}/v1/models/{HOT}").status_code == 200, "the config")
        assert [running.ask(model) for model in (OTHER, HOT)] == [200, 200]
        alone = asyncio.run(honest(running.url, ROUND_S))
        there, beside, after, seen, at_last = asyncio.run(grow(running))
        least, rested = 0, time.monotonic()
        while time.monotonic() < rested + REST_S and least != 1:
            least = pulling(running, HOT)
        loads = running.loads()
        print(f"copies of the hot model, seconds until each     {', '.join(f'{each:.1f}' for each in there)}")
        print(f"a load takes                                    {LOAD_S:g} s")
        print(f"calls of the hot model                          {len(seen.answers)}, {seen.refused()} refused")
        print(f"p95 of another model beside / alone             {beside / alone:.2f} ({beside:.0f} / {alone:.0f} ms)")
        print(f"p95 of another model once they are there        {after / alone:.2f} ({after:.0f} ms)")
        print(f"workers that run it at last                     {at_last}")
        print(f"workers that run it {time.monotonic() - rested:3.0f} s after the demand fell    {least}")
        print(f"loads                                           {dict(loads)}")


if __name__ == "__main__":
    main()

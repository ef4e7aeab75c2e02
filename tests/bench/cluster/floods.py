"""`python -m tests.bench.cluster.floods`: what another model's flood, or one bulk request, costs an honest client.

Prints the p95 of its calls beside the attack over that without.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.bench.cluster.overload import BODY, MODEL, Seen, request
from tests.soak.faults.cluster import whole_cluster

HONEST = request("sie-fake/dense", json.dumps({"items": [{"text": "a short text"}]}))
FLOOD, BULK = request(MODEL, BODY), request(MODEL, json.dumps({"items": [{"text": "a short text"}] * 16_384}))
ROUND_S, PAUSE_S, A_SECOND = 12.0, 0.02, 60.0
Attack = Callable[[str, float], Coroutine[Any, Any, None]]


async def flood(url: str, end: float) -> None:
    """Send more calls of one model than its workers can take."""
    async with asyncio.TaskGroup() as calls:
        while time.monotonic() < end:
            calls.create_task(Seen().ask(url, FLOOD))
            await asyncio.sleep(1 / A_SECOND)


async def bulk(url: str, end: float) -> None:
    """Send one request of 16 384 items."""
    await Seen().ask(url, BULK)


async def p95_ms(url: str, beside: Attack | None = None) -> tuple[float, int]:
    """Measure the honest client, and count what it was refused."""
    seen, end = Seen(), time.monotonic() + ROUND_S
    attack = None if beside is None else asyncio.create_task(beside(url, end))
    while time.monotonic() < end:
        await seen.ask(url, HONEST)
        await asyncio.sleep(PAUSE_S)
    if attack is not None:
        await attack
    return seen.p95_ms(lambda said: said == "200"), sum(said != "200" for said, _, _ in seen.answers)


def main() -> None:
    """Run it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        whole_cluster(Path(folder), f"{MODEL},sie-fake/dense", {}) as cluster,
    ):
        url = cluster.server.url
        asyncio.run(p95_ms(url))
        alone, _ = asyncio.run(p95_ms(url))
        for name, attack in (("a flood of another model", flood), ("a bulk request", bulk)):
            beside, refused = asyncio.run(p95_ms(url, attack))
            told = f"{beside / alone:.2f} ({beside:.0f} ms beside, {alone:.0f} ms alone, {refused} refused)"
            print(f"{name:<30} p95 / alone: {told}", flush=True)


if __name__ == "__main__":
    main()

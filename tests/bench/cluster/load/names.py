"""`python -m tests.bench.cluster.load.names`: 10 000 invented LoRA adapters, resource pools, profiles and models.

Prints what they cost: series and memory of the gateway, consumers of the broker, before and after.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

from tests.cluster.placement.fleet import Fleet, fleet

MODEL, AT_ONCE = "sie-fake/embedder:tuned", 32
Call = Callable[[int], tuple[str, dict[str, object], dict[str, str]]]
"""Gives path, parameters and headers of a call."""
KINDS: dict[str, Call] = {
    "LoRA adapters": lambda number: (MODEL, {"options": {"lora": f"invented-{number}"}}, {}),
    "resource pools": lambda number: (MODEL, {}, {"X-SIE-Pool": f"invented-{number}"}),
    "machine profiles": lambda number: (MODEL, {}, {"X-SIE-MACHINE-PROFILE": f"invented-{number}"}),
    "models": lambda number: (f"invented/{number}", {}, {}),
    "profiles of a model": lambda number: (f"sie-fake/embedder:invented-{number}", {}, {}),
    "request ids and clients": lambda number: (
        f"invented/{number}", {}, {"X-Request-ID": f"{number}", "Authorization": f"Bearer invented-{number}"}
    ),
}  # fmt: skip


async def ask(url: str, call: Call, count: int) -> Counter[int]:
    """Make calls, some at once; give their statuses."""
    told, numbers = Counter[int](), iter(range(count))
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def some() -> None:
            for number in numbers:
                model, params, headers = call(number)
                body = {"items": [{"text": "a"}], "params": params}
                reply = await client.post(f"/v1/encode/{model}", json=body, headers=headers)
                told[reply.status_code] += 1

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return told


def series(url: str) -> int:
    """Count the series of a gateway."""
    return len(re.findall(r"^[a-z]", httpx.get(f"{url}/metrics", timeout=60).text, re.MULTILINE))


async def consumers(running: Fleet) -> int:
    """Count the consumers of the queue at the broker."""
    import nats

    client = await nats.connect(running.broker.url)
    try:
        return (await client.jetstream().stream_info("sie-work-_default")).state.consumer_count
    finally:
        await client.close()


def main() -> None:
    """Run it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name, fleet(Path(name)) as running:
        running.add("w1")
        assert running.gateway is not None
        gateway = psutil.Process(running.gateway.process.pid)
        running.ask(MODEL)
        for kind, call in KINDS.items():
            asyncio.run(ask(running.url, call, 200))
            before = series(running.url), gateway.memory_info().rss
            told = asyncio.run(ask(running.url, call, count))
            grown = (gateway.memory_info().rss - before[1]) / 1e6
            print(
                f"{kind:<24} series {before[0]} → {series(running.url)}, memory {grown:+.1f} MB, "
                f"consumers {asyncio.run(consumers(running))}, answers {dict(told)}",
                flush=True,
            )


if __name__ == "__main__":
    main()

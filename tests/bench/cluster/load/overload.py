"""`python -m tests.bench.cluster.load.overload`: three times what the workers can take, over two gateways, as ratios.

Prints goodput over capacity, how fast refusals come, what memory the gateways need, and what is left afterwards.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlsplit

import httpx
import psutil

from tests.soak.faults.cluster import Struck, until, whole_cluster

MODEL = "sie-fake/embedder:slow"
"""A run of it takes 20 ms and 0.1 ms a token, of no processor's time."""
BODY = json.dumps({"items": [{"text": "word " * 100}] * 8})


def request(model: str, body: str) -> bytes:
    """Write a call."""
    own = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
    return f"POST /v1/encode/{model} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{own}\r\n\r\n{body}".encode()


REQUEST = request(MODEL, BODY)
_REFUSED = re.compile(r" 503 \[.*latency_ms=([0-9.]+)")
TIMES, CLOSED, ALONE_S, FLOOD_S = 3.0, 96, 12.0, 30.0


@dataclass
class Seen:
    """What clients got, by status and code, with the seconds that each took and when it came."""

    answers: list[tuple[str, float, float]] = field(default_factory=list)

    async def ask(self, url: str, call: bytes = REQUEST) -> None:
        """Make one call, on a connection of its own."""
        began, host = time.monotonic(), urlsplit(url)
        try:
            reader, writer = await asyncio.open_connection(host.hostname, host.port)
            try:
                writer.write(call)
                reply = await reader.read()
            finally:
                writer.close()
        except OSError as error:
            said = type(error).__name__
        else:
            status, code = reply[9:12].decode(), re.search(rb'"code":"(\w+)"', reply)
            said = f"{status} {code[1].decode()}" if code else status
        now = time.monotonic()
        self.answers.append((said, now - began, now))

    def refused(self) -> int:
        """Count those that were no success."""
        return sum(said != "200" for said, _, _ in self.answers)

    def rate(self, since: float, until_: float) -> float:
        """Count the answers a second within a time."""
        return sum(said == "200" and since <= at < until_ for said, _, at in self.answers) / (until_ - since)

    def p95_ms(self, wanted: Callable[[str], bool]) -> float:
        """Give the 95th percentile of how long some took."""
        took = [1000 * seconds for said, seconds, _ in self.answers if wanted(said)]
        return _p95(took)


def _p95(values: Iterable[float]) -> float:
    listed = list(values)
    return quantiles(listed, n=20)[-1] if len(listed) > 1 else sum(listed)


async def capacity(urls: tuple[str, str]) -> float:
    """Measure how many calls a second are answered while there are always enough."""
    seen, end = Seen(), time.monotonic() + ALONE_S

    async def client(url: str) -> None:
        while time.monotonic() < end:
            await seen.ask(url)

    await asyncio.gather(*(client(urls[number % 2]) for number in range(CLOSED)))
    return seen.rate(end - ALONE_S * 2 / 3, end)


async def flood(urls: tuple[str, str], a_second: float, look: Callable[[], Awaitable[None]]) -> tuple[Seen, float]:
    """Send calls at a rate, whatever becomes of them; give what they got and when the sending ended."""
    seen, began, sent = Seen(), time.monotonic(), 0
    async with asyncio.TaskGroup() as calls:
        while (now := time.monotonic()) < began + FLOOD_S:
            while sent < (now - began) * a_second:
                calls.create_task(seen.ask(urls[sent % 2]))
                sent += 1
            await look()
            await asyncio.sleep(0.05)
        ended = time.monotonic()
    return seen, ended


def added(urls: tuple[str, str], name: str) -> float:
    """Add a metric over both gateways and all labels."""
    texts = [httpx.get(f"{url}/metrics", timeout=30).text for url in urls]
    return sum(float(each) for text in texts for each in re.findall(rf"^{name}\{{.*\}} (\S+)$", text, re.MULTILINE))


def measure(cluster: Struck) -> list[tuple[str, str]]:
    """Measure, and give rows of what and how much."""
    urls = cluster.urls
    able = asyncio.run(capacity(urls))
    gateways = [cluster.find("gateway"), psutil.Process(cluster.second.process.pid)]
    before, most = [each.memory_info().rss for each in gateways], [0, 0]

    async def look() -> None:
        for place, each in enumerate(gateways):
            most[place] = max(most[place], each.memory_info().rss)

    seen, ended = asyncio.run(flood(urls, TIMES * able, look))
    codes = Counter(said for said, _, _ in seen.answers)
    until(lambda: cluster.backlog() == 0, "an empty queue")
    logs = (cluster.folder / "cluster/gateway.log").read_text() + cluster.second.log()
    refused = added(urls, "sie_gateway_rejected_requests_total")
    return [
        ("capacity, calls a second", f"{able:.1f}"),
        ("goodput under load / capacity", f"{seen.rate(ended - FLOOD_S, ended) / able:.2f}"),
        ("answers", ", ".join(f"{code}: {number}" for code, number in sorted(codes.items()))),
        ("refusals, p95 in ms", f"{seen.p95_ms(lambda said: said.startswith('503')):.0f}"),
        ("refusals, p95 in ms within the gateways", f"{_p95(map(float, _REFUSED.findall(logs))):.0f}"),
        ("answers, p95 in s", f"{seen.p95_ms(lambda said: said == '200') / 1000:.1f}"),
        (
            "memory of gateways under load / before",
            ", ".join(f"{now / then:.2f}" for now, then in zip(most, before, strict=True)),
        ),
        ("refused by the broker", str(logs.count("maximum messages"))),
        ("refusals by the metrics / by clients", f"{refused:.0f} / {codes['503 QUEUE_FULL']}"),
        ("bytes queued afterwards, by the metrics", f"{added(urls, 'sie_gateway_queued_cost'):.0f}"),
        ("messages in the queue afterwards", str(cluster.backlog())),
    ]


def main() -> None:
    """Run it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        whole_cluster(Path(folder), MODEL, {"SIE_ACCESS_LOG": "all"}) as cluster,
    ):
        for what, much in measure(cluster):
            print(f"{what:<45} {much}")


if __name__ == "__main__":
    main()

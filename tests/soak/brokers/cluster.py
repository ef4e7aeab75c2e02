"""What runs at the three brokers: two gateways, and two workers that have one model of the fake family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.placement.fleet import Fleet, fleet_at
from tests.soak.brokers.brokers import Brokers, three_brokers
from tests.soak.faults.clients import Clients
from tests.soak.faults.cluster import LATENCY_MS, healthy_workers, until

MODEL, DIMS = "test/brokers", 8
WORKERS = ("w1", "w2")
REPLICAS = {"SIE_NATS_REPLICAS": "3"}


@dataclass
class Struck:
    """All of it."""

    brokers: Brokers
    fleet: Fleet
    urls: tuple[str, str]

    def clients(self, number: int) -> Clients:
        """Make clients of both gateways."""
        return Clients(self.urls, number, model=MODEL, dims=DIMS)

    def whole(self) -> None:
        """Wait until all follow their leaders, and both gateways hear of both workers."""
        self.brokers.leader("meta")
        self.brokers.leader("stream")
        until(lambda: all(healthy_workers(url) == len(WORKERS) for url in self.urls), "the workers at both gateways")

    def ran(self) -> Counter[str]:
        """Count how often each text ran."""
        return Counter(text for event in self.fleet.events() if event.kind == "run" for text in event.texts)


@contextmanager
def struck(folder: Path) -> Iterator[Struck]:
    """Run it until the end of the block."""
    with (
        three_brokers(folder) as brokers,
        fleet_at(brokers, folder, **REPLICAS) as fleet,
        fleet.another_gateway(**REPLICAS) as second,
    ):
        fleet.write(MODEL, latency_ms=LATENCY_MS)
        fleet.add(*WORKERS, SIE_PRELOAD_MODELS=MODEL, **REPLICAS)
        cluster = Struck(brokers, fleet, (fleet.url, second))
        cluster.whole()
        yield cluster

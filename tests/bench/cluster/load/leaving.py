"""`python -m tests.bench.cluster.load.leaving`: ten workers come and leave one after the other under load.

Prints the requests that failed, and the loads over those of an oracle: each model of a worker that leaves, once.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from tests.cluster.placement.fleet import fleet
from tests.soak.faults.cluster import until

MODELS = [f"bench/{number}" for number in range(6)]
KEPT = 2
"""Workers that there are at a time."""


def main() -> None:
    """Run it."""
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as name, fleet(Path(name)) as running:
        for model in MODELS:
            running.write(model, load_s=0.5)
        running.add(*(f"w{number}" for number in range(KEPT)))
        with running.traffic(MODELS) as failed:
            until(lambda: all(running.loads()[model] for model in MODELS), "every model")
            first, needed = running.loads().total(), 0
            for number in range(workers):
                leaves = f"w{number}"
                running.add(f"w{number + KEPT}")
                had = [model for model in MODELS if running.has(leaves, model)]
                others = {
                    model for model in had for each in running.workers if each != leaves and running.has(each, model)
                }
                needed += len(had) - len(others)
                running.end(leaves, signal.SIGTERM)
                until(lambda had=had: all(map(running.anywhere, had)), "what it had loaded elsewhere")
            runs = sum(event.kind == "run" for event in running.events())
        print(f"requests that failed, of those that made {runs} runs    {len(failed)} {sorted(set(failed))}")
        print(f"loads at the start / models                     {first} / {len(MODELS)}")
        print(f"loads since / needed                            {running.loads().total() - first} / {needed}")


if __name__ == "__main__":
    main()

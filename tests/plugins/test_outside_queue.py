"""A queue from outside the tree, as `sie plugins new` writes it: it keeps the rules, and a cluster runs over it."""

from __future__ import annotations

import sys
from pathlib import Path

from sie_kit.cli.projects import make

from tests.plugins.outside import environment, install_beside, run

ROOT = Path(__file__).parents[2]
CONFORMS_AND_ANSWERS = """
import asyncio, sys
from pathlib import Path
from pydantic import SecretStr
from sie_kit.checks.queue import QUEUE_CHECKS
from sie_shelf.plugin import create
from tests.cluster.in_process import running

for check in QUEUE_CHECKS:
    check(lambda: create("shelf://test", {}))

async def ask():
    async with running(Path(sys.argv[1]), nats_url=SecretStr("shelf://cluster")) as cluster:
        body = {"items": [{"text": f"text {place}"} for place in range(100)]}
        for client in (cluster.client, cluster.alone):
            reply = await client.post("/v1/encode/sie-fake/embedder", json=body, headers={"Prefer": "wait=60"})
            assert reply.status_code == 200, reply.text
            yield [item["dense"] for item in reply.json()["items"]]
        assert cluster.metric("sie_gateway_slices_total") == 4

async def main():
    here, there = [each async for each in ask()]
    assert here == there
    print("equal answers")

asyncio.run(main())
"""


def test_it_keeps_the_rules_of_every_queue_transport_and_a_cluster_answers_over_it(tmp_path: Path) -> None:
    project = make("shelf", "queue", tmp_path)
    install_beside(project)
    variables = environment(SIE_HF_FALLBACK="false", PYTHONPATH=f"{project}:{ROOT}")
    done = run([sys.executable, "-c", CONFORMS_AND_ANSWERS, tmp_path], tmp_path, variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "equal answers\n"

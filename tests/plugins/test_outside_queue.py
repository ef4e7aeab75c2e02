"""A queue written outside the tree, with a URL scheme of its own: it keeps the rules, and a cluster runs over it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.plugins.outside import environment, run

ROOT = Path(__file__).parents[2]
CONFORMS = """
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings
from sie_kit.checks.queue import QUEUE_CHECKS

factory = discover(Settings(), BUILTINS).queue_transports["shelf"]
for check in QUEUE_CHECKS:
    check(lambda: factory.create("shelf://test", {}))
print(len(QUEUE_CHECKS), "checks hold")
"""
ANSWERS = """
import asyncio, sys
from pathlib import Path
from pydantic import SecretStr
from tests.cluster.in_process import running

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


def python(install, folder: Path, script: str, *arguments: object) -> str:  # type: ignore[no-untyped-def]
    variables = environment(install("outside_queue"), SIE_HF_FALLBACK="false")
    variables["PYTHONPATH"] += f":{ROOT}"
    done = run([sys.executable, "-c", script, *arguments], folder, variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_keeps_the_rules_of_every_queue_transport(install, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert "checks hold" in python(install, tmp_path, CONFORMS)


def test_a_cluster_answers_over_it(install, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert "equal answers" in python(install, tmp_path, ANSWERS, tmp_path)

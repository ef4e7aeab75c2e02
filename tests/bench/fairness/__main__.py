"""`python -m tests.bench.fairness`: prints the figures of docs/operate/fairness.md."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from itertools import product

import numpy as np

from sie_core.cpu_budget import cpu_budget
from tests.bench.clients.formats import FORMATS
from tests.bench.fairness import beside, overload
from tests.bench.page.verdicts import OURS
from tests.bench.processes.running import HOST, Server, serving
from tests.bench.processes.servers import MODEL, SERVERS
from tests.bench.workload.words import sentences

FAKE = "sie-fake/embedder:slow"
"""20 ms a batch and 0.1 ms a word: no other load on the machine changes its capacity."""
WORKLOADS = {FAKE: (1, 100), MODEL: (8, 100)}
"""Texts and words of the requests of the overload."""
PLACES = {"SIE_MAX_CONCURRENT_REQUESTS": "4096"}
"""So many requests may wait out ten seconds: what the queue does is measured, not the gate before it."""
DEADLINES_S = (0.5, 2.0, 10.0)
TIMES_THE_DEADLINE = 4
"""A row lasts so long at least: what is prepared while the queue fills up is answered after its end."""
DISTINCT = 1500
"""Requests: of equal ones a server takes each for another that comes back."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fairness")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each row is measured")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all of them by default")
    given = parser.parse_args()
    spec = replace(SERVERS[OURS], variables=PLACES)
    with serving(spec, cpu_budget().threads) as server:
        if not given.rows or "beside" in given.rows:
            _beside(server, given.seconds)
        if not given.rows or "overload" in given.rows:
            _overload(server, given.seconds)


def _beside(server: Server, seconds: float) -> None:
    print("| beside | p50 alone | p50 | ratio | p99 alone | p99 | ratio | refused | texts/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for texts, words in ((512, 250), (2000, 250)):
        alone, found = asyncio.run(beside.measure(server, texts, words, seconds))
        print(
            f"| {texts} texts of {words} words | {alone.p50_ms:.1f} ms | {found.p50_ms:.1f} ms "
            f"| {found.p50_ms / alone.p50_ms:.1f} | {alone.p99_ms:.1f} ms | {found.p99_ms:.1f} ms "
            f"| {found.p99_ms / alone.p99_ms:.1f} | {found.refused} | {found.texts_s:.0f} |",
            flush=True,
        )


def _overload(server: Server, seconds: float) -> None:
    # The client shares the server's cores, and sends more at overload than while the capacity is measured.
    cores = cpu_budget().threads
    head = (
        "model",
        "load",
        "deadline",
        "capacity",
        "answered in time",
        "of the cores it had",
        "refusals, median",
        "late",
    )
    print(f"| {' | '.join((*head, 'returned', 'in time'))} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for model in WORKLOADS:
        plain = _requests(model)
        before = asyncio.run(overload.capacity(server.port, plain, seconds / 2))
        for times, deadline_s in product((2.0, 3.0), DEADLINES_S):
            requests = _requests(model, f"X-SIE-Timeout-Ms: {1000 * deadline_s:.0f}\r\n")
            lasts = max(seconds, TIMES_THE_DEADLINE * deadline_s)
            found = asyncio.run(overload.measure(server.port, requests, before.per_s, times, lasts))
            after = asyncio.run(overload.capacity(server.port, plain, seconds / 2))
            most = (before.per_s + after.per_s) / 2
            share = found.share * before.per_s / most
            left = share * (cores - after.sending_cores) / max(0.1, cores - found.sending_cores)
            refused = "–" if found.refusal_ms is None else f"{found.refusal_ms:.0f} ms"
            kept = "–" if found.kept is None else f"{100 * found.kept:.0f} %"
            print(
                f"| {model} | {times:g} x | {deadline_s:g} s | {most:.0f}/s | {100 * share:.0f} % "
                f"| {100 * left:.0f} % | {refused} | {100 * found.late:.1f} % | {found.returned} | {kept} |",
                flush=True,
            )
            before = after


def _requests(model: str, more: str = "") -> list[bytes]:
    texts, words = WORKLOADS[model]
    random = np.random.default_rng(5)
    head = f"Host: {HOST}\r\n"
    form = FORMATS["base64"]
    made = [form.request(HOST, model, [sentences(words, random) for _ in range(texts)]) for _ in range(DISTINCT)]
    return [request.replace(head.encode(), (head + more).encode(), 1) for request in made]


if __name__ == "__main__":
    main()

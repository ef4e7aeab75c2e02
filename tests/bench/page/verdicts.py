"""The figures the project set itself, beside what a run found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from tests.bench.page.results import Ratio, Results, choose, middle, ratio, ratio_of
from tests.bench.processes.servers import SERVERS
from tests.bench.without_server.commands import SCRIPT
from tests.bench.workload.workloads import CLIENTS

OURS = "sie"
BARS = ("infinity", "infinity-bt")
"""The torch engine of infinity, as it installs today and with the libraries of its day."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One figure: what it should be and is."""

    what: str
    wanted: str
    found: str
    holds: bool


def verdicts(results: Results) -> Iterator[Verdict]:
    """Compare whatever was measured."""
    yield from _speed(results)
    yield from _runner(results)
    yield from _accuracy(results)
    yield from _memory(results)
    yield from _start(results)
    yield from _scaling(results)
    yield from _operations(results)


def _speed(results: Results) -> Iterator[Verdict]:
    for bar in BARS:
        yield from _against(results, bar)
    single = {"server": OURS, "kind": "mixed", "group": 1}
    many, few = (choose(results.grid, clients=clients, **single) for clients in (64, 8))
    if found := ratio(many, few, "texts_s"):
        yield Verdict("our texts/s at 64 clients over those at 8", "≥ 0.95", str(found), found.median >= 0.95)


def _against(results: Results, bar: str) -> Iterator[Verdict]:
    """Divide our figures by those of a server we want to beat."""

    def over(name: str, group: int, clients: int) -> Ratio | None:
        cell = {"kind": "mixed", "group": group, "clients": clients}
        ours, theirs = (choose(results.grid, server=server, **cell) for server in (OURS, bar))
        return ratio(ours, theirs, name)

    title = SERVERS[bar].title
    if found := over("p50", 1, 1):
        yield Verdict(f"p50 of one text, one client, over {title}", "≤ 0.33", str(found), found.median <= 1 / 3)
    if found := over("texts_s", 1, 64):
        yield Verdict(f"texts/s at 64 clients over {title}", "≥ 6, aim 9", str(found), found.median >= 6)
    for clients in CLIENTS:
        if found := over("texts_s", 32, clients):
            what = f"texts/s of 32-text requests, clients: {clients}, over {title}"
            yield Verdict(what, "≥ 4", str(found), found.median >= 4)


def _runner(results: Results) -> Iterator[Verdict]:
    if not results.runner or not results.ceilings:
        return
    precision = results.runner["precision"]
    limit = results.ceilings[precision]["products"]["tokens_s"]
    share = median(results.runner["tokens_s"]) / limit
    what = f"tokens/s of the runner over the {precision} matrix-product limit"
    yield Verdict(what, "≥ 0.65, aim 0.8", f"{share:.2f}", share >= 0.65)
    named = sum(seconds for name, seconds in results.runner["profile_s"].items() if not name.startswith("other"))
    explained = named / sum(results.runner["profile_s"].values())
    yield Verdict("share of the runner's time its profile names", "≥ 0.95", f"{explained:.3f}", explained >= 0.95)


def _accuracy(results: Results) -> Iterator[Verdict]:
    answers = choose(results.grid + results.formats, server=OURS)
    if answers:
        least = min(each["least_cosine"] for each in answers)
        checked = sum(each["checked"] for each in answers)
        yield Verdict(f"least cosine of {checked} answers under load", "≥ 0.9995", f"{least:.6f}", least >= 0.9995)
    found = results.accuracy
    if found:
        overlap, first, swap = found["overlap"], found["equal_first"], found["widest_swap"]
        yield Verdict(f"mean overlap@10 of {found['queries']} queries", "≥ 0.98", f"{overlap:.4f}", overlap >= 0.98)
        yield Verdict("equal top-1", "≥ 0.98", f"{first:.4f}", first >= 0.98)
        what = f"widest float32 gap of {found['swapped_pairs']} swapped pairs"
        yield Verdict(what, "< 0.005", f"{swap:.2e}", swap < 5e-3)


def _memory(results: Results) -> Iterator[Verdict]:
    for name, field in (("loaded", "rss_bytes"), ("after the load test", "rss_after_bytes")):
        found = middle(choose(results.starts, server=OURS), field)
        if found is not None:
            yield Verdict(f"memory {name}", "≤ 600 MB", f"{found / 1e6:.0f} MB", found <= 600e6)


def _start(results: Results) -> Iterator[Verdict]:
    """Compare the time from the command to the first vector with that of a bare script."""
    stages = [each["stages_s"]["first vector"] for each in choose(results.starts, server=OURS)]
    if stages and SCRIPT in results.commands:
        found = median(stages) / results.commands[SCRIPT] * 1000
        what = "first vector after `sie serve`, over a script of sentence-transformers"
        yield Verdict(what, "≤ 1.3", f"{found:.2f}", found <= 1.3)


def _scaling(results: Results) -> Iterator[Verdict]:
    if results.scaling:
        flat, over = results.scaling["flatness"], results.scaling["latency_over_alone_p99"]
        sizes = " … ".join(f"{int(size):,}" for size in results.scaling["tokens_s"])
        yield Verdict(f"least over largest tokens/s at {sizes} texts", "≥ 0.90", f"{flat:.2f}", flat >= 0.9)
        found = f"{over['first']:.2f} (a later visit: {over['again']:.2f})"
        yield Verdict("one client's latency over a text's own time, p99", "≤ 2", found, over["first"] <= 2)


def _operations(results: Results) -> Iterator[Verdict]:
    for name, found in results.operations.items():
        size = max(found["theirs"], key=lambda size: median(found["theirs"][size]))
        over = ratio_of(found["ours"], found["theirs"][size])
        what = f"{found['unit']}/s of {name} over {found['library']} at its best batch size ({size})"
        wanted = found.get("wanted", 1.5)  # which older results do not name
        yield Verdict(what, f"≥ {wanted:g}", str(over), over.median >= wanted)

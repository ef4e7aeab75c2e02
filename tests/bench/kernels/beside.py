"""`python -m tests.bench.kernels.beside`: the CPU families beside other runtimes, and the light server.

It writes `cpu.md` and `cpu.json`. Each repetition measures one after the other, so that the machine's drift cancels.
With `--starts` it prints how long each server takes to the first vector, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from sie_core.cpu_budget import CpuBudget, cpu_budget, set_thread_environment
from tests.bench.clients.cells import measure
from tests.bench.hardware import describe
from tests.bench.page.results import Record, choose, ratio
from tests.bench.page.tables import section
from tests.bench.processes.children import ask
from tests.bench.processes.environments import ROOT, RUNTIMES, SCRATCH
from tests.bench.processes.running import Server, serving
from tests.bench.processes.servers import SIE, weights
from tests.bench.workload.reference import reference
from tests.bench.workload.texts import make_texts
from tests.bench.workload.workloads import Cell

KINDS = {"mixed": "mixed", "long": "equal"}
"""Kinds of texts, and what their lengths are called."""
SIZES = (1, 8, 64)
"""Texts of a batch, or clients that send one each."""
KERNELS, PYTORCH = "sie-cpu", "sie-pytorch"
WITHOUT_KERNELS = {"SIE_PLUGINS_BLOCKED": "cpu"}
RUNTIMES_BESIDE = tuple(
    (name, precision)
    for name, precisions in {
        KERNELS: ("float32", "bfloat16"),
        PYTORCH: ("float32", "bfloat16"),
        "onnxruntime": ("float32", "int8"),
        "openvino": ("f32", "bf16"),
    }.items()
    for precision in precisions
)
LIGHT = replace(
    SIE,
    name="sie-light",
    title="SIE, light environment",
    command=lambda port: [str(ROOT / ".light/bin/sie"), *SIE.command(port)[1:]],
)
SERVERS = (
    LIGHT,
    replace(SIE, title="SIE, whole environment"),
    replace(SIE, name=PYTORCH, title="SIE, whole environment without sie-cpu", variables=WITHOUT_KERNELS),
)


def main() -> None:
    """Measure, and write page and figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a cell at least")
    parser.add_argument("--threads", type=int, default=cpu_budget().threads)
    parser.add_argument("--beside", default="", help="a sentence on what else ran on the machine")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/performance")
    parser.add_argument("--starts", action="store_true", help="measure the starts alone, and print them")
    given = parser.parse_args()
    if given.starts:
        starts = [each for number in range(given.repeats) for each in first_vectors(number, given.threads)]
        print(section("From the start of the process", START_HEAD, _starts(starts)))
        return
    RUNTIMES.build()
    graph = SCRATCH / "runtimes" / "model.onnx"
    if not graph.is_file():
        graph.parent.mkdir(parents=True, exist_ok=True)
        command = [RUNTIMES.program("python"), "-m", "tests.bench.without_server.onnx_graph", weights(), graph]
        subprocess.run(list(map(str, command)), check=True, cwd=ROOT, stdout=sys.stderr, timeout=600)
    found: dict[str, Any] = {"hardware": describe(given.threads), "starts": [], "servers": [], "runtimes": []}
    found["beside"] = given.beside
    for repetition in range(given.repeats):
        plan = repetition, given.threads, given.seconds
        for part in (servers(*plan), runtimes(*plan, graph)):
            for name, record in part:
                found[name].append(record)
            (given.out / "cpu.json").write_text(json.dumps(found, indent=1) + "\n")
            (given.out / "cpu.md").write_text(page(found))


def runtimes(repetition: int, threads: int, seconds: float, graph: Path) -> Iterator[tuple[str, Record]]:
    """Measure each runtime in a process of its own."""
    kinds = {}
    for kind in KINDS:
        texts = make_texts(kind)
        expected = reference(texts, threads)
        kinds[kind] = {"texts": texts, "tokens": expected.tokens.tolist(), "reference": str(expected.file)}
    job = {"threads": threads, "seconds": seconds, "weights": str(weights()), "graph": str(graph), "kinds": kinds}
    for name, precision in RUNTIMES_BESIDE:
        ours = name in (KERNELS, PYTORCH)
        variables = dict(WITHOUT_KERNELS) if name == PYTORCH else {}
        if ours:
            set_thread_environment(CpuBudget(threads, threads), variables)  # as `sie serve` sets them
        python = sys.executable if ours else RUNTIMES.program("python")
        asked = {**job, "runtime": name, "precision": precision, "sizes": SIZES}
        answer = ask("kernels.runtime", asked, threads, python, variables)
        for cell in answer["cells"]:
            place = {"runtime": f"{name}, {precision}", "served": answer["served"], "repetition": repetition}
            yield "runtimes", {**place, **cell}


def first_vectors(repetition: int, threads: int) -> Iterator[Record]:
    """Measure the start of each server, as `servers` does, without load."""
    for spec in SERVERS:
        with serving(spec, threads) as server:
            yield {**_start(server, repetition), "rss_after_bytes": server.rss_bytes}


def servers(repetition: int, threads: int, seconds: float) -> Iterator[tuple[str, Record]]:
    """Measure the start of each server, and its cells."""
    for spec in SERVERS:
        with serving(spec, threads) as server:
            start = _start(server, repetition)
            for kind in KINDS:
                expected = reference(make_texts(kind), threads)
                for clients in SIZES:
                    cell = asdict(measure(server, Cell(kind, 1, clients, seconds), expected))
                    place = {"server": spec.title, "kind": kind, "size": clients, "repetition": repetition}
                    yield "servers", {**place, **cell}
            after = server.footprint.rss_bytes()
            yield "starts", {**start, "rss_after_bytes": after}


def _start(server: Server, repetition: int) -> Record:
    place = {"server": server.spec.title, "repetition": repetition}
    return {**place, **server.stages_s, "cpu_s": server.footprint.cpu_seconds(), "rss_bytes": server.rss_bytes}


def page(found: dict[str, Any]) -> str:
    """Write the page from the figures alone."""
    hardware = found["hardware"]
    machine = f"{hardware['cpu']}, {hardware['cpus']} CPUs ({', '.join(hardware['flags'])}), {hardware['system']}"
    parts = [
        "# CPUs: the light server, and other runtimes\n",
        "Written by `python -m tests.bench.kernels.beside`: all-MiniLM-L6-v2, in one run on one machine, all in "
        f"turn in each repetition. Figures are medians, ratios have their range.\n\n{machine}. {found['beside']}\n",
        section("From the start of the process", START_HEAD, _starts(found["starts"])),
        section("Single texts over HTTP", SERVERS_HEAD, _servers(found["servers"])),
        section("Batches in process", RUNTIMES_HEAD, _runtimes(found["runtimes"])),
    ]
    return "\n".join(parts)


SERVERS_HEAD = ("lengths", "clients", "server", "tokens/s", "over the last", "p50 ms")
RUNTIMES_HEAD = (
    *("lengths", "texts", "runtime", "version or runner, precision", "tokens/s"),
    *("sie-cpu's best over it", "least cosine"),
)
START_HEAD = (
    "server",
    "listening s",
    "first vector s",
    "over the last",
    "CPU s",
    "over the last",
    "MB then",
    "MB after the load",
)


def _starts(starts: Sequence[Record]) -> Iterator[tuple[object, ...]]:
    last = choose(list(starts), server=SERVERS[-1].title)
    for spec in SERVERS:
        own = choose(list(starts), server=spec.title)
        if not own:
            continue
        listening, first, cpu = (f"{_middle(own, name):.2f}" for name in ("listening", "first vector", "cpu_s"))
        over = [ratio(own, last, name) or "–" for name in ("first vector", "cpu_s")]
        sizes = [f"{_middle(own, name) / 1e6:.0f}" for name in ("rss_bytes", "rss_after_bytes")]
        yield spec.title, listening, first, over[0], cpu, over[1], *sizes


def _servers(cells: Sequence[Record]) -> Iterator[tuple[object, ...]]:
    for kind, told in KINDS.items():
        for size in SIZES:
            of_cell = choose(list(cells), kind=kind, size=size)
            last = choose(of_cell, server=SERVERS[-1].title)
            for spec in SERVERS:
                if own := choose(of_cell, server=spec.title):
                    speed, over = f"{_middle(own, 'tokens_s'):,.0f}", ratio(own, last, "tokens_s") or "–"
                    yield told, size, spec.title, speed, over, f"{_middle(own, 'p50'):.1f}"


def _runtimes(cells: Sequence[Record]) -> Iterator[tuple[object, ...]]:
    for kind, told in KINDS.items():
        for size in SIZES:
            of_cell = choose(list(cells), kind=kind, size=size)
            if not of_cell:
                continue
            names = list(dict.fromkeys(each["runtime"] for each in of_cell))
            by_name = {name: choose(of_cell, runtime=name) for name in names}
            best = [own for name, own in by_name.items() if name.startswith(KERNELS)]
            ours = max(best, key=lambda own: _middle(own, "tokens_s"))
            for name, own in by_name.items():
                least = min(each["least_cosine"] for each in own)
                figures = f"{_middle(own, 'tokens_s'):,.0f}", ratio(ours, own, "tokens_s"), f"{least:.5f}"
                yield told, size, name.partition(",")[0], own[0]["served"], *figures


def _middle(records: Sequence[Record], name: str) -> float:
    return float(median(each[name] for each in records))


if __name__ == "__main__":
    main()

"""The servers' turns: one repetition after the other, each server in each, so that the machine's drift cancels."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import psutil

from tests.bench.clients.cells import LEAST_COSINE, WrongAnswerError, measure
from tests.bench.options import Options
from tests.bench.page.results import Record, Results
from tests.bench.processes.environments import ROOT
from tests.bench.processes.running import Server, ServerError, serving
from tests.bench.processes.servers import MODEL, SERVERS, SIE
from tests.bench.workload.reference import Reference, reference
from tests.bench.workload.texts import make_texts
from tests.bench.workload.workloads import Cell

FORMAT_CELLS = (Cell("mixed", 1, 1, 1.0), Cell("mixed", 32, 4, 1.0))


def take_turns(results: Results, options: Options) -> None:
    """Measure the grid and the formats on every server, and save after every turn."""
    kinds = {cell.kind for cell in (*options.cells, *FORMAT_CELLS)}
    expected = {kind: reference(make_texts(kind), options.threads) for kind in sorted(kinds)}
    for repetition in range(options.repeats):
        for name in options.servers:
            try:
                with serving(SERVERS[name], options.threads) as server:
                    _turn(results, options, server, repetition, expected)
            except (ServerError, WrongAnswerError, psutil.Error) as error:
                results.problems.append(str(error).replace(str(ROOT), "."))
                print(error, file=sys.stderr, flush=True)
            results.save(options.out)


def _turn(results: Results, options: Options, server: Server, repetition: int, expected: dict[str, Reference]) -> None:
    start = {
        "server": server.spec.name,
        "repetition": repetition,
        "stages_s": server.stages_s,
        **_facts(server),
        "rss_bytes": server.rss_bytes,
    }
    for cell in options.cells if "grid" in options.parts else ():
        if not (cell.is_heavy and repetition):
            results.grid.append(_record(server, cell, repetition, expected[cell.kind], results))
    for form in server.spec.formats if "formats" in options.parts else ():
        for cell in FORMAT_CELLS:
            results.formats.append(_record(server, cell, repetition, expected[cell.kind], results, form))
    start["rss_after_bytes"] = server.footprint.rss_bytes()
    start["peak_bytes"] = server.footprint.peak_bytes()
    results.starts.append(start)


def _record(
    server: Server, cell: Cell, repetition: int, expected: Reference, results: Results, form: str | None = None
) -> Record:
    found = measure(server, cell, expected, form)
    form = form or server.spec.formats[0]
    what = f"{repetition + 1}: {server.spec.title}, {cell.name}, {form}"
    print(f"{what}: p50 {found.p50:.1f} ms, {found.texts_s:.1f} texts/s", file=sys.stderr, flush=True)
    if found.least_cosine < LEAST_COSINE:
        results.problems.append(f"{server.spec.title}, {cell.name}, {form}: cosine {found.least_cosine:.6f} to float32")
    place = {"server": server.spec.name, "kind": cell.kind, "group": cell.group, "clients": cell.clients}
    return {**place, "format": form, "repetition": repetition, **asdict(found)}


def _facts(server: Server) -> dict[str, Any]:
    """Ask SIE how long each stage of its load took and what runs the model; others do not tell."""
    if server.spec is not SIE:
        return {"load_stages_s": {}, "runner": None, "padding_waste": None}
    told: dict[str, Any] = json.loads(server.get(f"/v1/models/{MODEL}")[1])
    runner = told["notes"].get("runner")
    packs = runner is not None and not runner.startswith("padded")
    return {"load_stages_s": told["load_stages_s"], "runner": runner, "padding_waste": 0.0 if packs else None}

"""The blocks that need no server, or only SIE's own, each put into the results."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from sie_core.cpu_budget import CpuBudget, set_thread_environment
from tests.bench.clients.load_ceiling import requests_a_second
from tests.bench.cluster import large
from tests.bench.cluster import measuring as of_cluster
from tests.bench.fairness import siege
from tests.bench.fairness.table import row
from tests.bench.kernels import measuring as of_kernels
from tests.bench.operations import measuring
from tests.bench.operations.measuring import Plan
from tests.bench.options import Options
from tests.bench.page.results import Results
from tests.bench.processes.children import ask
from tests.bench.processes.environments import INFINITY
from tests.bench.processes.running import serving
from tests.bench.processes.servers import SERVERS, weights
from tests.bench.without_server import accuracy, commands, scaling
from tests.bench.without_server.in_process import padding_waste
from tests.bench.without_server.onnx_graph import build_graph
from tests.bench.workload.reference import reference
from tests.bench.workload.texts import KINDS, make_texts

BASE64_BYTES = 2246
"""Of SIE's answer to one text."""
LATENCY_TEXTS = 1000
IN_PROCESS_TEXTS = {"short": 512, "mixed": 256, "long": 64}
"""A few seconds each."""


def command_line(results: Results, options: Options) -> None:
    """Measure how long the command line takes to start."""
    results.commands = commands.measure(3 if options.quick else 9)


def load(results: Results, options: Options) -> None:
    """Measure the load generator against a server that computes nothing."""
    results.load["requests_s"] = requests_a_second(BASE64_BYTES, requests=2000 if options.quick else 20_000)


def in_process(results: Results, options: Options) -> None:
    """Measure the libraries without servers, and how much of what they compute is padding."""
    kinds: dict[str, Any] = {}
    waste, tokens = {}, {}
    for kind in KINDS:
        texts = make_texts(kind)
        expected = reference(texts, options.threads)
        count = 64 if options.quick else IN_PROCESS_TEXTS[kind]
        kinds[kind] = {"texts": texts[:count], "reference": str(expected.file)}
        counted = expected.tokens[:count].tolist()
        waste[kind], tokens[kind] = padding_waste(texts[:count], counted), sum(counted) / count
    graph = build_graph(weights())
    job = {"threads": options.threads, "weights": str(weights()), "graph": str(graph), "kinds": kinds}
    modules = {"sentence-transformers": "sentence_transformers_speed", "ONNX Runtime": "onnx_speed"}
    found: dict[str, list[Any]] = {name: [] for name in modules}
    for _ in range(options.repeats):
        for name, module in modules.items():
            python = INFINITY.program("python") if module == "onnx_speed" else sys.executable
            found[name].append(ask(module, job, options.threads, python))
    results.in_process = {"speeds": found, "padding_waste": waste, "tokens_a_text": tokens}


def runner(results: Results, options: Options) -> None:
    """Measure what each operation could reach on this machine, then SIE's forward pass."""
    results.ceilings = ask("ceilings", {"threads": options.threads}, options.threads)
    texts = make_texts("mixed")[: 100 if options.quick else None]
    job = {
        "threads": options.threads, "weights": str(weights()), "texts": texts, "batch_tokens": 2048,
        "repeats": max(3, options.repeats),
    }  # fmt: skip
    variables: dict[str, str] = {}
    set_thread_environment(CpuBudget(options.threads, options.threads), variables)  # as `sie serve` sets them
    results.runner = ask("runner_speed", job, options.threads, variables=variables)


def kernels(results: Results, options: Options) -> None:
    """Measure what the compiled kernels are worth beside the loop, on this processor and on AVX2 alone."""
    results.kernels = of_kernels.measure(of_kernels.Plan(options.threads, options.repeats, options.quick))


def operations(results: Results, options: Options) -> None:
    """Measure score, sparse, multi-vector, extract and large embedders beside their libraries."""
    plan = Plan(options.threads, options.repeats, options.quick)
    results.operations = measuring.measure(plan)
    for name, found in results.operations.items():
        if found["wrong"]:
            results.problems.append(f"{SERVERS['sie'].title}, {name}: other answers than {found['library']}'s")


def cluster(results: Results, options: Options) -> None:
    """Measure what a cluster adds, on the fake family."""
    results.cluster = of_cluster.measure(of_cluster.Plan(options.repeats, options.quick))
    results.cluster["large"] = large.measure(options.quick)
    results.problems += [
        f"{SERVERS['sie'].title}, a cluster's large answers by {way}: {found['cut_off']} connections cut off, "
        f"{found['left_in_store']} payloads left"
        for way, found in results.cluster["large"].items()
        if found["cut_off"] or found["left_in_store"] or not found["right"]
    ]


def fairness(results: Results, options: Options) -> None:
    """Measure what attacks inside every limit do to others and to the memory."""
    outcomes = siege.measure(options.threads, 3.0 if options.quick else 15.0, 0.1 if options.quick else 1.0)
    results.fairness = [row(outcome) for outcome in outcomes]
    results.problems += [f"{SERVERS['sie'].title}, {each.name}: {why}" for each in outcomes for why in each.problems]


def own_server(results: Results, options: Options) -> None:
    """Measure accuracy and scaling on a fresh server of SIE."""
    with serving(SERVERS["sie"], options.threads) as server:
        if "accuracy" in options.parts:
            sizes = (50, 200) if options.quick else (accuracy.QUERIES, accuracy.DOCUMENTS)
            results.accuracy = asdict(accuracy.measure(server, options.threads, *sizes))
        if "scaling" in options.parts:
            visits = scaling.latency_over_alone(server, 20 if options.quick else LATENCY_TEXTS)
            found = scaling.measure(
                server, options.threads, options.scaling_sizes, options.scaling_repeats,
                options.scaling_seconds, options.scaling_kind, options.scaling_request,
            )  # fmt: skip
            results.scaling = {
                **asdict(found), "flatness": found.spread, "request": options.scaling_request,
                "latency_over_alone_p99": asdict(visits),
            }  # fmt: skip

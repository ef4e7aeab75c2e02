"""The tables of a run in Markdown, from its results alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from tests.bench.cluster import table as cluster
from tests.bench.fairness import table as fairness
from tests.bench.kernels import table as kernels
from tests.bench.operations import table as operations
from tests.bench.page.results import Record, Results, choose, middle, ratio
from tests.bench.page.verdicts import OURS, verdicts
from tests.bench.processes.servers import SERVERS
from tests.bench.without_server.ceilings import LAYERS, ROWS

NONE = "–"


def render(results: Results) -> str:
    """Write every table there is something for."""
    parts = [
        section("The bars", ("figure", "wanted", "found", ""),
                 [(v.what, v.wanted, v.found, "✓" if v.holds else "✗") for v in verdicts(results)]),
        section("SIE over the others, by cell", _ratio_head(results), _ratios(results)),
        section("Every server, by cell", FIGURES_HEAD, _figures(results.grid)),
        section("Formats", FORMATS_HEAD, _formats(results.formats)),
        section("Start and memory", STARTS_HEAD, _starts(results)),
        section("The command line", ("command", "ms"), _commands(results)),
        section("In process", IN_PROCESS_HEAD, _in_process(results)),
        section("The runner against its ceilings", RUNNER_HEAD, _runner(results)),
        section("What the kernels are worth", kernels.HEAD, kernels.rows(results.kernels)),
        section("Operations", operations.HEAD, operations.rows(results.operations)),
        section("What a cluster adds", cluster.LATENCY_HEAD, cluster.latency(results.cluster)),
        section("CPU of a cluster's processes", cluster.CPU_HEAD, cluster.cpu(results.cluster)),
        section("CPU of a cluster's processes by part", cluster.PARTS_HEAD, cluster.parts(results.cluster)),
        section("Large answers of a cluster beside single texts", cluster.LARGE_HEAD, cluster.large(results.cluster)),
        section("Attacks", fairness.HEAD, fairness.rows(results.fairness)),
        section("Cost by size", ("texts in one client run", "tokens/s"), _scaling(results)),
        _conditions(results),
    ]  # fmt: skip
    return "\n".join(part for part in parts if part)


def _commands(results: Results) -> Iterator[tuple[object, ...]]:
    return ((f"`{name}`", _number(ms)) for name, ms in results.commands.items())


def section(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table below its title; nothing without rows."""
    written = [" | ".join(str(cell) for cell in row) for row in rows]
    if not written:
        return ""
    lines = [" | ".join(head), "|".join("---" for _ in head), *written]
    return f"## {title}\n\n" + "\n".join(f"| {line} |" for line in lines) + "\n"


def _number(value: float | None, digits: int = 0) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"


def _cells(records: list[Record]) -> list[tuple[str, int, int]]:
    return list(dict.fromkeys((each["kind"], each["group"], each["clients"]) for each in records))


def _ratios(results: Results) -> Iterator[tuple[object, ...]]:
    others = _others(results)
    for kind, group, clients in _cells(results.grid):
        cell = {"kind": kind, "group": group, "clients": clients}
        ours = choose(results.grid, server=OURS, **cell)
        if ours:
            theirs = [choose(results.grid, server=other, **cell) for other in others]
            speeds = [ratio(ours, found, "texts_s") or NONE for found in theirs]
            latencies = [ratio(ours, found, "p50") or NONE for found in theirs]
            own = [_number(middle(ours, name), 1) for name in ("texts_s", "p50")]
            yield kind, group, clients, *own, *speeds, *latencies


def _ratio_head(results: Results) -> tuple[str, ...]:
    titles = [SERVERS[other].title for other in _others(results)]
    speeds, latencies = ([f"{name} over {title}" for title in titles] for name in ("texts/s", "p50"))
    return "texts", "a request", "clients", "SIE texts/s", "SIE p50 ms", *speeds, *latencies


def _others(results: Results) -> list[str]:
    return [name for name in SERVERS if name != OURS and choose(results.grid, server=name)]


FIGURES_HEAD = (
    "texts", "a request", "clients", "server", "p50 ms", "p99 ms", "texts/s", "tokens/s", "CPU ms/text", "least cosine",
    "largest difference",
)  # fmt: skip


def _figures(grid: list[Record]) -> Iterator[tuple[object, ...]]:
    for kind, group, clients in _cells(grid):
        for server in SERVERS.values():
            found = choose(grid, server=server.name, kind=kind, group=group, clients=clients)
            if not found:
                continue
            cpu = median(each["cpu_s"] / each["seconds"] / each["texts_s"] * 1000 for each in found)
            yield (
                kind, group, clients, server.title,
                *(_number(middle(found, name), 1) for name in ("p50", "p99", "texts_s")),
                _number(middle(found, "tokens_s")), _number(cpu, 1), _least(found), f"{_most(found):.0e}",
            )  # fmt: skip


def _least(found: list[Record]) -> str:
    return f"{min(each['least_cosine'] for each in found):.6f}"


def _most(found: list[Record]) -> float:
    largest: float = max(each["largest_difference"] for each in found)
    return largest


FORMATS_HEAD = ("texts a request", "clients", "server", "format", "answer bytes", "p50 ms", "texts/s")


def _formats(formats: list[Record]) -> Iterator[tuple[object, ...]]:
    for _, group, clients in _cells(formats):
        for server in SERVERS.values():
            for form in server.formats:
                found = choose(formats, server=server.name, group=group, clients=clients, format=form)
                if found:
                    figures = (("body_bytes", 0), ("p50", 1), ("texts_s", 1))
                    yield (group, clients, server.title, form, *(_number(middle(found, *[n]), d) for n, d in figures))


STARTS_HEAD = (
    "server", "listening s", "ready s", "first vector s", "MB then", "MB after the load", "MB at the peak",
    "padding", "stages of the load s",
)  # fmt: skip


def _starts(results: Results) -> Iterator[tuple[object, ...]]:
    for server in SERVERS.values():
        found = choose(results.starts, server=server.name)
        if not found:
            continue
        stages = [median(each["stages_s"][name] for each in found) for name in ("listening", "ready", "first vector")]
        memory = [middle(found, name) for name in ("rss_bytes", "rss_after_bytes", "peak_bytes")]
        load = ", ".join(
            f"{name} {median(each['load_stages_s'][name] for each in found):.2f}" for name in found[0]["load_stages_s"]
        )
        waste = middle(found, "padding_waste")
        yield (
            server.title, *(_number(stage, 1) for stage in stages),
            *(_number(each / 1e6 if each is not None else None) for each in memory),
            NONE if waste is None else f"{waste:.0%}", load or NONE,
        )  # fmt: skip


IN_PROCESS_HEAD = ("texts", "what", "texts/s", "tokens/s", "p50 of one text ms", "padding", "least cosine")


def _in_process(results: Results) -> Iterator[tuple[object, ...]]:
    found = results.in_process
    for kind, waste in found.get("padding_waste", {}).items():
        for name, runs in found["speeds"].items():
            speeds = [run[kind] for run in runs]
            texts_s, p50 = middle(speeds, "texts_s"), middle(speeds, "p50")
            tokens = None if texts_s is None else texts_s * found["tokens_a_text"][kind]
            yield (kind, name, _number(texts_s, 1), _number(tokens), _number(p50, 1), f"{waste:.0%}", _least(speeds))


RUNNER_HEAD = ("operation", "ms per 1,000 tokens", "share of the time", "at its ceiling ms", "share of the ceiling")


def _runner(results: Results) -> Iterator[tuple[object, ...]]:
    found = results.runner
    if not found or not results.ceilings:
        return
    thousands, total = found["tokens"] / 1000, sum(found["profile_s"].values())
    for name, seconds in sorted(found["profile_s"].items(), key=lambda pair: -pair[1]):
        least = ceiling_seconds(name, found["work"], results.ceilings[found["precision"]])
        shown = (NONE, NONE) if least is None else (_number(least * 1000 / thousands, 2), f"{least / seconds:.0%}")
        yield name, _number(seconds * 1000 / thousands, 2), f"{seconds / total:.1%}", *shown
    yield "all, profiled", _number(total * 1000 / thousands, 2), "100 %", NONE, NONE
    limit = results.ceilings[found["precision"]]["products"]
    rate = median(found["tokens_s"])
    yield (
        "all, unprofiled",
        _number(1e6 / rate, 2),
        NONE,
        _number(1e6 / limit["tokens_s"], 2),
        (
            f"{rate / limit['tokens_s']:.0%} of the product limit ({limit['tokens_s']:,.0f} tokens/s, "
            f"{limit['gflops']:.0f} GFLOP/s {found['precision']}): {rate:,.0f} tokens/s"
        ),
    )


def ceiling_seconds(group: str, work: dict[str, float], ceilings: dict[str, Any]) -> float | None:
    """Say how long a group's work takes at what was measured for it alone; None where nothing was."""
    if group not in work:
        return None
    if group.startswith("products: "):
        seconds = ceilings["products"]["seconds"][group.removeprefix("products: ")]
        return work[group] * LAYERS * float(seconds) / ROWS
    if group == "products":
        return work[group] / float(ceilings["products"]["tokens_s"])
    if group == "attention":
        return work[group] / float(ceilings["attention_flops_s"])
    rate = ceilings["elements_s"].get(group)
    return None if rate is None else work[group] / float(rate)


def _scaling(results: Results) -> Iterator[tuple[object, ...]]:
    for size, rates in results.scaling.get("tokens_s", {}).items():
        yield f"{int(size):,}", f"{median(rates):,.0f} ({min(rates):,.0f}–{max(rates):,.0f})"


def _conditions(results: Results) -> str:
    machine = results.hardware
    lines = [
        f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['threads']} compute threads for everything measured; "
        f"{', '.join(machine['flags'])}; {machine['memory_gb']} GB; {machine['system']}, Python {machine['python']}.",
        "Here: " + ", ".join(f"{name} {number}" for name, number in machine["versions"].items()) + ".",
        *(f"`.envs/{name}`: {', '.join(pins)}." for name, pins in machine["environments"].items()),
        *(f"Texts, {kind}: {facts}." for kind, facts in results.texts.items()),
    ]
    if results.load:
        best = max((each["requests_s"] for each in results.grid), default=None)
        over = f", {results.load['requests_s'] / best:,.0f} times the fastest cell" if best else ""
        lines.append(f"The load generator alone reaches {results.load['requests_s']:,.0f} requests/s{over}.")
    lines += [f"Problem: {problem}" for problem in results.problems]
    return "## Conditions\n\n" + "\n".join(f"- {line}" for line in lines) + "\n"

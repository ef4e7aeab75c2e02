"""The tables of the cluster, from its results alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

LATENCY_HEAD = ("one client, one text", "p50 ms", "over the server ms")
CPU_HEAD = ("CPU µs", "gateway", "sidecar", "worker", "broker", "together", "requests/s")
PARTS_HEAD = ("process", "named", "parts of its CPU, 32 clients and one text a request")
LARGE_HEAD = (
    *("by", "singles' p95 alone, ms", "beside", "ratio", "answers", "cut off", "MB/s of large ones"),
    "CPU ms a MB",
    *("most MB more: gateway", "sidecar", "worker", "broker"),
)
PROCESSES = ("gateway", "sidecar", "worker", "broker")


def latency(found: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Write what the cluster adds, beside the bare transport."""
    p50 = found.get("p50_ms", {})
    names = {
        "server": "`sie serve`",
        "cluster": "`sie cluster up`",
        "bare": "the transport alone",
    }
    for name, title in names.items():
        if p50.get(name):
            over = median(b - a for a, b in zip(p50["server"], p50[name], strict=True))
            yield title, f"{median(p50[name]):.2f}", "" if name != "cluster" else f"{over:+.2f}"


def cpu(found: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Write what each process uses."""
    for name, used in found.get("cpu_us", {}).items():
        yield name, *(f"{each:.0f}" for each in _parts_and_sum(used)), f"{used['requests_s']:,.0f}"
    for key, clients in (("sleeping_cpu_us", "32 clients"), ("same_load_cpu_us", "4 clients a worker")):
        sleeping = found.get(key, {})
        for workers, used in sleeping.items():
            title = f"an item of 32 by {clients}, {workers} sleeping workers"
            yield title, *(f"{each:.1f}" for each in _parts_and_sum(used)), f"{used['requests_s']:,.0f}"
        if len(sleeping) > 1:
            columns = zip(*map(_parts_and_sum, sleeping.values()), strict=True)
            yield "most over least of these", *(f"{max(each) / min(each):.2f} ×" for each in columns), ""


def _parts_and_sum(used: Mapping[str, float]) -> list[float]:
    each = [used[name] for name in PROCESSES]
    return [*each, sum(each)]


def parts(found: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Write by which parts of a program its CPU is used."""
    for process, shares in found.get("profile", {}).items():
        named = 1 - shares.get("unnamed", 0.0)
        yield process, f"{named:.0%}", ", ".join(f"{part} {share:.0%}" for part, share in shares.items())


def large(found: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Write what eight answers of 33 MB at once and a picture of 20 MB do to single texts and to the memory."""
    for way, of in found.get("large", {}).items():
        alone, beside, peaks = of["alone_p95_ms"], of["beside_p95_ms"], of["peak_mb"]
        right, pace = "right" if of["right"] else "wrong", f"{of['large_mb_s']:.0f}"
        memory = (f"{peaks[each]:.0f}" if each in peaks else "" for each in PROCESSES)
        cpu = ", ".join(f"{name} {used:.2f}" for name, used in of["cpu_ms_mb"].items() if name != "config")
        yield way, f"{alone:.1f}", f"{beside:.1f}", f"{beside / alone:.2f}", right, of["cut_off"], pace, cpu, *memory

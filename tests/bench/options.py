"""The command line of the bench."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from sie_core.cpu_budget import cpu_budget
from tests.bench.processes.environments import ROOT
from tests.bench.processes.servers import SERVERS
from tests.bench.workload.texts import KINDS
from tests.bench.workload.workloads import Cell, grid, quick_grid

PARTS = (
    *("commands", "load", "in-process", "runner", "kernels", "grid", "formats"),
    *("accuracy", "scaling", "operations", "cluster", "fairness"),
)


DEFAULT_SERVERS = ("sie", "infinity")
"""Every server would take more than an hour."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be measured."""

    servers: tuple[str, ...]
    parts: tuple[str, ...]
    cells: tuple[Cell, ...]
    repeats: int
    threads: int
    out: Path
    quick: bool
    scaling_sizes: tuple[int, ...]
    scaling_repeats: int
    scaling_seconds: float
    scaling_kind: str
    scaling_request: int
    render: bool


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line."""
    given = _parser().parse_args(arguments)
    cells = quick_grid() if given.quick else grid(given.seconds)
    wanted = [cell for cell in cells if cell.kind in given.kinds and cell.clients in (given.clients or [cell.clients])]
    quick_sizes = (200, 1000)
    return Options(
        servers=tuple(given.servers),
        parts=tuple(given.parts),
        cells=tuple(wanted),
        repeats=given.repeats or (1 if given.quick else 3),
        threads=given.threads,
        out=given.out or (ROOT / ".envs/bench/quick" if given.quick else ROOT / "docs/performance"),
        quick=given.quick,
        scaling_sizes=quick_sizes if given.quick else tuple(given.scaling_sizes),
        scaling_repeats=1 if given.quick else given.scaling_repeats,
        scaling_seconds=given.scaling_seconds,
        scaling_kind=given.scaling_kind,
        scaling_request=given.scaling_request,
        render=given.render,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="SIE beside what a user would pick.")
    add = parser.add_argument
    add("--quick", action="store_true", help="a smoke run: few cells, small blocks, results under .envs/bench/quick")
    add("--servers", type=_names(SERVERS), default=list(DEFAULT_SERVERS), help=f"of {','.join(SERVERS)}")
    add("--parts", type=_names(PARTS), default=list(PARTS), help=f"of {','.join(PARTS)}")
    add("--kinds", type=_names(KINDS), default=list(KINDS), help=f"of {','.join(KINDS)}")
    add("--clients", type=_numbers, help="cells with these numbers of clients only, e.g. 1,64")
    add("--seconds", type=float, default=2.0, help="how long a cell goes on at least; more make it steadier")
    add("--repeats", type=int, help="repetitions, the servers taking turns (3; 1 with --quick)")
    add("--threads", type=int, default=cpu_budget().threads, help="compute threads of whatever is measured")
    add("--out", type=Path, help="where results.json, results.md and the picture go (docs/performance)")
    add("--scaling-sizes", type=_numbers, default=[1000, 10_000, 100_000], help="texts of each run")
    add("--scaling-repeats", type=int, default=5)
    add("--scaling-seconds", type=float, default=30.0, help="a size that took this long is not run again")
    add("--scaling-kind", choices=list(KINDS), default="short")
    add("--scaling-request", type=int, default=1000, help="texts a request; 0 sends all in one")
    add("--render", action="store_true", help="measure nothing: write tables and picture from results.json again")
    return parser


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    def split(value: str) -> list[str]:
        names = [name.strip() for name in value.split(",")]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return names

    return split


def _numbers(value: str) -> list[int]:
    return [int(number) for number in value.split(",")]

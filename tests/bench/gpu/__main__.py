"""`python -m tests.bench.gpu`: measures every shape on a GPU and writes a page, `build/bench-gpu/table.md`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sie_core.contracts import Device
from tests.bench.gpu.loads import NAMES, make_load
from tests.bench.gpu.measuring import Found, Plan, measure
from tests.bench.gpu.page import render
from tests.bench.gpu.shapes import SHAPES
from tests.bench.gpu.timing import product_rate
from tests.bench.hardware import describe
from tests.bench.processes.environments import ROOT

PRECISION = "bfloat16"
PRODUCT_SIZE = 8192


def main() -> int:
    """Measure and write; a machine without a CUDA device leaves the page as it is."""
    options = _parser().parse_args()
    if not torch.cuda.is_available():
        print("No CUDA device: nothing is measured, and the page stays as it is.", file=sys.stderr)
        return 1
    options.out.parent.mkdir(parents=True, exist_ok=True)
    place = torch.device("cuda:0")
    loads = tuple(make_load(kind, options.tokens) for kind in NAMES)
    plan = Plan(Device("cuda"), PRECISION, loads, options.repeats)
    rate = product_rate(place, plan.dtype, PRODUCT_SIZE, 5 * options.repeats)
    found: list[Found] = []
    for name in options.shapes:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            found.append(measure(SHAPES[name], plan, Path(scratch)))
        options.out.write_text(render(found, rate, hardware(plan)), encoding="utf-8")
    print(options.out.read_text(encoding="utf-8"))
    return 0


def hardware(plan: Plan) -> dict[str, Any]:
    """Describe the machine, its device and what is installed."""
    found = describe(torch.get_num_threads())
    name = "a CPU"
    if plan.place.type == "cuda":
        properties = torch.cuda.get_device_properties(plan.place)
        name = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    try:
        found["versions"]["flash-attn"] = version("flash-attn")
    except PackageNotFoundError:
        found["versions"]["flash-attn"] = "not installed,"
    return {**found, "device": name, "precision": plan.precision}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description="SIE on a GPU.")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--tokens", type=int, default=2**18, help="tokens of each kind of text")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench-gpu/table.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.bench.gpu.quick`: what is true of a GPU within nine minutes, into one folder.

Each part runs in a process of its own with a limit of time, and writes what it has as soon as it has it. A part that
fails stops no other; `report.md` of the folder says which failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import torch
import yaml
from sie_pytorch.families.encode.loading import load as load_encoder

from sie_core.contracts import Device, Item, Task
from tests.bench.clients.closed_loop import Round, drive
from tests.bench.clients.formats import FORMATS
from tests.bench.gpu import passes
from tests.bench.gpu.__main__ import PRECISION, hardware
from tests.bench.gpu.loads import make_load
from tests.bench.gpu.measuring import Plan, measure_passes
from tests.bench.gpu.shapes import FEW_LAYERS, SHAPES, TINY, TINY_DECODER, Shape, write_model, write_splade
from tests.bench.gpu.timing import middle, product_rate, wait
from tests.bench.processes.environments import ROOT
from tests.bench.processes.running import HOST
from tests.bench.workload.words import sentences
from tests.conftest import run_server
from tests.pytorch.encoders import context

MODEL = "bench/bert"
FORM = FORMATS["msgpack"]
LIMIT_S = 60.0
TRACED_PASSES = 10
ON_A_CPU = 4
"""How many times as long a part may take without a GPU, where the run shows only that it works."""
PRODUCT_SIZE = 8192
SWITCHES: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("as shipped", {}),
    ("SIE_MAX_BATCH_REQUESTS=64", {"SIE_MAX_BATCH_REQUESTS": "64"}),
    ("SIE_CUDA_GRAPHS=auto", {"SIE_CUDA_GRAPHS": "auto"}),
    ("SIE_CUDA_TRIAL=copies", {"SIE_CUDA_TRIAL": "copies"}),
    ("SIE_CUDA_GRAPHS=auto and SIE_CUDA_TRIAL=copies", {"SIE_CUDA_GRAPHS": "auto", "SIE_CUDA_TRIAL": "copies"}),
    ("SIE_FRONTENDS=4", {"SIE_FRONTENDS": "4"}),
)
"""Settings that the rows of the whole server are measured with, and what to call them."""


@dataclass(frozen=True, slots=True)
class Clients:
    """One row of the whole server: so many clients, each with one request of so many texts in flight."""

    name: str
    clients: int
    texts: int
    words: int

    @property
    def tokens(self) -> int:
        """Of a text, its special tokens included."""
        return self.words + 2


ROWS = (
    Clients("one client, one text of 8 words", 1, 1, 8),
    Clients("256 clients, one text of 400 words each", 256, 1, 400),
    Clients("256 clients, one text of 14 words each", 256, 1, 14),
    Clients("16 clients, 64 texts of 14 words each", 16, 64, 14),
)


@dataclass(frozen=True, slots=True)
class Run:
    """Where and how large one run is."""

    out: Path
    device: str
    shape: Shape
    seconds: float
    tokens: int


def tests(run: Run) -> None:
    """Hold every runner to float32, by the tests that need a device."""
    log = run.out / "tests.log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=short", "tests/gpu"]
        done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False)
    (run.out / "tests.md").write_text("```\n" + "\n".join(log.read_text().splitlines()[-25:]) + "\n```\n")
    if done.returncode:
        raise SystemExit(done.returncode)


def profile(run: Run) -> None:
    """Say what the threads of a server do for one client, and for 256; and what one forward pass launches."""
    with tempfile.TemporaryDirectory() as name:
        weights = write_model(run.shape, Path(name) / "model", getattr(torch, PRECISION))
        for clients in (ROWS[0], ROWS[2]):
            out = run.out / f"threads-{clients.clients}.json"
            prefix = [sys.executable, str(Path(__file__).with_name("sampled.py")), str(out)]
            _serve(run, weights, {}, [clients], prefix)
        (run.out / "launches.txt").write_text(_launches(run, weights))


def whole(run: Run) -> None:
    """Ask whole servers, each with other settings, and write a table."""
    lines = ["| settings | row | p50, ms | p95, ms | texts/s | tokens/s | failed |", "|" + "---|" * 7]
    with tempfile.TemporaryDirectory() as name:
        weights = write_model(run.shape, Path(name) / "model", getattr(torch, PRECISION))
        for what, env in SWITCHES:
            for row in _serve(run, weights, env, ROWS, ()):
                lines.append(f"| {what} | {row}")
                (run.out / "whole.md").write_text("\n".join(lines) + "\n")


def loops(run: Run) -> None:
    """Time the forward pass of each runner over texts of one length."""
    _passes(run, run.shape, run.out / "loops.json")


def decoder(run: Run) -> None:
    """The same of a decoder's layers, with the runner whose steps are fused."""
    os.environ["SIE_CUDA_FUSED"] = "race"
    _passes(run, TINY_DECODER if run.shape is TINY else FEW_LAYERS, run.out / "decoder.json")


def sparse(run: Run) -> None:
    """Time batches of a SPLADE model: how long the device's thread is at one, and how many texts a second pass."""
    lines = ["| SIE_CUDA_TRIAL | ms of the device's thread a batch of 64 texts | texts/s |", "|" + "---|" * 3]
    device = Device(run.device, asynchronous=run.device == "cuda")
    items = [Item(text=text) for text in make_load("16", 64 * 16).texts]
    with tempfile.TemporaryDirectory() as name:
        weights = write_splade(run.shape, Path(name) / "model", getattr(torch, PRECISION))
        for trial in ("off", "splade", "all"):
            os.environ["SIE_CUDA_TRIAL"] = trial
            adapter = load_encoder(context(weights, precision=PRECISION, device=device))
            units = list(adapter.prepare(items, Task("encode", ("sparse",))))
            adapter.finish(units, adapter.run(units))
            taken, before, started = [], adapter.run(units), time.perf_counter()
            while time.perf_counter() - started < run.seconds:
                since = time.perf_counter()
                raw = adapter.run(units)
                taken.append(time.perf_counter() - since)
                adapter.finish(units, before)
                before = raw
            rate = len(units) * len(taken) / (time.perf_counter() - started)
            lines.append(f"| {trial} | {1000 * middle(taken):.2f} | {rate:,.0f} |")
            (run.out / "sparse.md").write_text("\n".join(lines) + "\n")


PARTS: Mapping[str, tuple[Callable[[Run], None], float]] = {
    "tests": (tests, 105.0),
    "whole": (whole, 215.0),
    "profile": (profile, 75.0),
    "loops": (loops, 60.0),
    "decoder": (decoder, 45.0),
    "sparse": (sparse, 40.0),
}
"""Each part and the seconds that it may take; together they bound the whole run."""
MODELS = {**SHAPES, TINY.name: TINY}


def _passes(run: Run, shape: Shape, out: Path) -> None:
    loads = tuple(make_load(kind, run.tokens) for kind in ("16", "128", "512"))
    plan = Plan(Device(run.device), PRECISION, loads, repeats=3)
    size = PRODUCT_SIZE if run.device == "cuda" else 256
    rate = product_rate(plan.place, plan.dtype, size, 10)
    with tempfile.TemporaryDirectory() as name:
        for found in measure_passes(shape, plan, Path(name)):
            shares = {each: kinds["512"] * found.flops_a_token / rate for each, kinds in found.tokens_s.items()}
            told = {
                "shape": shape.name,
                "product_tflops": rate / 1e12,
                "tokens_s": found.tokens_s,
                "alone_ms": found.alone_ms,
                "share_of_limit": shares,
                "refused": found.refused,
            }
            out.write_text(json.dumps(told, indent=1))


def _serve(
    run: Run, weights: Path, env: Mapping[str, str], rows: Sequence[Clients], prefix: Sequence[str]
) -> list[str]:
    """Serve the model; return a line for each row."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "models").mkdir()
        (folder / "models/bert.yaml").write_text(yaml.safe_dump({"sie_id": MODEL, "weights_path": str(weights)}))
        own = {
            "SIE_DEVICE": run.device,
            "SIE_MODELS_DIR": str(folder / "models"),
            "SIE_DEFAULT_COMPUTE_PRECISION": PRECISION,
        }
        with run_server(folder / "server", {**own, **env}, ["--preload", MODEL], prefix=prefix) as server:
            port = urlsplit(server.url).port
            assert port is not None
            if prefix:
                server.process.send_signal(signal.SIGUSR1)
            return [asyncio.run(_row(run, port, each)) for each in rows]


async def _row(run: Run, port: int, row: Clients) -> str:
    random = np.random.default_rng(7)
    bodies = [FORM.request(HOST, MODEL, [sentences(row.words, random) for _ in range(row.texts)]) for _ in range(64)]
    await drive(HOST, port, Round(bodies, 1, run.seconds / 2), row.clients, LIMIT_S)
    found = await drive(HOST, port, Round(bodies, 1, run.seconds), row.clients, LIMIT_S)
    good = [answer.seconds for answer in found.answers if answer.status == 200]
    rate = row.texts * len(good) / (found.ended - found.started)
    p50, p95 = (1000 * float(np.percentile(good, part)) if good else float("nan") for part in (50, 95))
    failed = len(found.answers) - len(good) + found.lost
    return f"{row.name} | {p50:.2f} | {p95:.2f} | {rate:,.0f} | {rate * row.tokens:,.0f} | {failed} |"


def _launches(run: Run, weights: Path) -> str:
    """Trace forward passes of one short text with PyTorch's profiler."""
    from sie_flash.plugin import sie_runners as kernel_runners
    from sie_pytorch.forward.specs import RUNNERS

    specs = sorted([*kernel_runners(), *RUNNERS], key=lambda spec: -spec.priority)
    info, prepare = passes.packed_pass(weights, Device(run.device), PRECISION, specs)
    work = prepare([passes.tokenize(weights, make_load("16", 16).texts)])
    place = torch.device(run.device)
    for _ in range(3):
        work()
    wait(place)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if place.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as traced:
        for _ in range(TRACED_PASSES):
            work()
        wait(place)
    order = "self_cuda_time_total" if place.type == "cuda" else "self_cpu_time_total"
    table = traced.key_averages().table(sort_by=order, row_limit=25, max_name_column_width=60)
    host = traced.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=60)
    return f"{info.name}, {TRACED_PASSES} passes of one text of 16 tokens\n{table}\n{host}\n"


def run_part(name: str, command: Sequence[str], limit_s: float) -> str:
    """Run one part to its end or its limit; return a line about it."""
    started = time.monotonic()
    process = subprocess.Popen([*command, "--part", name], cwd=ROOT, start_new_session=True)
    try:
        ended = f"exit code {process.wait(limit_s)}"
    except subprocess.TimeoutExpired:
        ended = f"stopped after its limit of {limit_s:.0f} s"
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return f"- {name}: {'done' if ended.endswith('code 0') else ended}, {time.monotonic() - started:.0f} s\n"


def main() -> int:
    """Run every part, or the one that `--part` names; return 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.quick", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench-gpu")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shape", choices=list(MODELS), default="BERT-base")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each row of the whole server")
    parser.add_argument("--tokens", type=int, default=2**17, help="of each kind of text of the runners' passes")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        print("No CUDA device: nothing is measured. To try the script: --device cpu --shape tiny.", file=sys.stderr)
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    if given.part:
        PARTS[given.part][0](Run(given.out, given.device, MODELS[given.shape], given.seconds, given.tokens))
        return 0
    place = Plan(Device(given.device), PRECISION, (), 1)
    report = given.out / "report.md"
    report.write_text(f"```json\n{json.dumps(hardware(place), indent=1, default=str)}\n```\n\n")
    own = [sys.executable, "-m", "tests.bench.gpu.quick", "--out", str(given.out), "--device", given.device]
    own += ["--shape", given.shape, "--seconds", str(given.seconds), "--tokens", str(given.tokens)]
    lines = []
    for name in given.parts:
        line = run_part(name, own, PARTS[name][1] * (1 if given.device == "cuda" else ON_A_CPU))
        lines.append(line)
        print(line, end="", flush=True)
        with report.open("a", encoding="utf-8") as file:
            file.write(line)
    print(report.read_text(encoding="utf-8"))
    return int(not all(": done," in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())

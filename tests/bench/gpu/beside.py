"""`python -m tests.bench.gpu.beside`: what a flood of one model costs short requests of another on one GPU.

Prints a table: the 95th percentile of the short requests beside each flood over that alone, and the texts a second that
the flood keeps of what it gets alone. Every vector of a short text must equal the one it got alone, bit for bit.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import torch
import yaml

from tests.bench.clients.closed_loop import Round, drive
from tests.bench.clients.formats import FORMATS
from tests.bench.gpu.__main__ import PRECISION
from tests.bench.gpu.shapes import SHAPES, Shape, write_model
from tests.bench.processes.running import HOST
from tests.bench.workload.words import sentences
from tests.conftest import run_server

SHORT, FLOODED = "bench/short", "bench/flooded"
FORM = FORMATS["msgpack"]
LIMIT_S = 120.0
HEAD = ("flood", "p95 / alone", "p50, ms", "p95, ms", "p99, ms", "texts/s alone", "kept", "failed", "differ")
PAUSE_S = 0.005
"""Between an answer and the next short request."""
SETTLED_S = 1.0
"""Of a flood, before the short requests are looked at."""


@dataclass(frozen=True, slots=True)
class Flood:
    """What the clients of a flood send, each again once it is answered."""

    name: str
    texts: int
    words: int
    clients: int

    def bodies(self, count: int = 16) -> list[bytes]:
        """Write that many requests."""
        return write(FLOODED, self.texts, self.words, count, seed=7)


FLOODS = (
    Flood("requests of 64 texts of 250 words", 64, 250, 16),
    Flood("requests of one text of 400 words", 1, 400, 256),
    Flood("one request of 16,384 short texts", 16_384, 8, 1),
)


@dataclass(slots=True)
class Seen:
    """What came back: milliseconds and bodies of the short requests, and texts a second of the flood."""

    took_ms: list[float] = field(default_factory=list)
    texts_s: float = 0.0
    differing: int = 0
    failed: int = 0

    def percentile(self, part: float) -> float:
        return float(np.percentile(self.took_ms, part)) if self.took_ms else float("nan")


def write(model: str, texts: int, words: int, count: int, seed: int) -> list[bytes]:
    """Write requests to `/v1/encode`."""
    random = np.random.default_rng(seed)
    return [FORM.request(HOST, model, [sentences(words, random) for _ in range(texts)]) for _ in range(count)]


async def ask(
    port: int, seconds: float, flood: Flood | None, shorts: Sequence[bytes], expected: dict[int, bytes]
) -> Seen:
    """Send short requests, a flood, or one beside the other, for so many seconds."""
    seen = Seen()
    sending = None
    shared = Round([], 0)
    if flood is not None:
        shared = Round(flood.bodies(), 1, seconds + SETTLED_S)
        sending = asyncio.create_task(drive(HOST, port, shared, flood.clients, LIMIT_S))
        await asyncio.sleep(SETTLED_S)
    if shorts:
        found = await drive(HOST, port, Round(shorts, 1, seconds, pause_s=PAUSE_S), 1, LIMIT_S)
        for answer in found.answers:
            seen.failed += answer.status != 200
            if answer.status == 200:
                seen.took_ms.append(1000 * answer.seconds)
                vectors = FORM.read(answer.body).tobytes()
                seen.differing += expected.setdefault(answer.index, vectors) != vectors
    if sending is not None and flood is not None:
        await sending
        good = sum(answer.status == 200 for answer in shared.answers)
        seen.failed += len(shared.answers) - good
        seen.texts_s = flood.texts * good / (shared.ended - shared.started)
    return seen


async def rows(port: int, floods: Sequence[Flood], seconds: float) -> list[str]:
    """Measure each flood, the short requests alone before and after it."""
    shorts = write(SHORT, 1, 8, 32, seed=11)
    expected: dict[int, bytes] = {}
    await ask(port, 1.0, None, shorts, expected)
    told = []
    for flood in floods:
        await ask(port, 1.0, flood, (), expected)  # the scheduler has learnt how long its batches take
        alone = await ask(port, seconds, None, shorts, expected)
        unopposed = await ask(port, seconds, flood, (), expected)
        beside = await ask(port, seconds, flood, shorts, expected)
        again = await ask(port, seconds, None, shorts, expected)
        alone.took_ms += again.took_ms
        cells = (
            flood.name,
            f"{beside.percentile(95) / alone.percentile(95):.2f}",
            f"{alone.percentile(50):.1f} → {beside.percentile(50):.1f}",
            f"{alone.percentile(95):.1f} → {beside.percentile(95):.1f}",
            f"{alone.percentile(99):.1f} → {beside.percentile(99):.1f}",
            f"{unopposed.texts_s:,.0f}",
            f"{beside.texts_s / unopposed.texts_s:.2f}",
            str(sum(each.failed for each in (alone, unopposed, beside, again))),
            str(sum(each.differing for each in (alone, beside, again))),
        )
        told.append("| " + " | ".join(cells) + " |")
    return told


def run(device: str, shapes: tuple[Shape, Shape], floods: Sequence[Flood], seconds: float) -> list[str]:
    """Serve both models; return the lines of the table."""
    head = (
        "flood",
        "p95 / alone",
        "p50, ms",
        "p95, ms",
        "p99, ms",
        "its texts/s alone",
        "kept",
        "failed",
        "differ",
    )
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    dtype = getattr(torch, PRECISION)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "models").mkdir()
        for model, shape in zip((SHORT, FLOODED), shapes, strict=True):
            weights = write_model(shape, folder / model.replace("/", "-"), dtype)
            config = yaml.safe_dump({"sie_id": model, "weights_path": str(weights)})
            (folder / "models" / f"{model.replace('/', '-')}.yaml").write_text(config)
        env = {
            "SIE_DEVICE": device,
            "SIE_MODELS_DIR": str(folder / "models"),
            "SIE_DEFAULT_COMPUTE_PRECISION": PRECISION,
        }
        with run_server(folder / "server", env, ["--preload", f"{SHORT},{FLOODED}"]) as server:
            port = urlsplit(server.url).port
            assert port is not None
            for row in asyncio.run(rows(port, floods, seconds)):
                lines.append(row)
                print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.beside")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--short", choices=list(SHAPES), default="BERT-base")
    parser.add_argument("--flooded", choices=list(SHAPES), default="BGE-M3")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each part of a row is measured")
    given = parser.parse_args()
    print("\n".join(run(given.device, (SHAPES[given.short], SHAPES[given.flooded]), FLOODS, given.seconds)))


if __name__ == "__main__":
    main()

"""`python -m tests.bench.through_child`: what the way to an engine's process and back costs, without a model's numbers.

Prints milliseconds a request of one text, and microseconds a further text in requests of 32 texts of 128 tokens. The
stand-in of `tests/sglang` answers; its own time to read and write JSON counts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from sie_sglang.loading import load

from sie_core.contracts import Item, Task
from tests.pytorch.encoders import context
from tests.sglang.conftest import write_embedder, write_python

TEXTS = 32
WORDS = "quick brown fox jumps over the lazy dog " * 12
TASK = Task("encode", ("dense",))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.through_child")
    parser.add_argument("--repeats", type=int, default=300)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SIE_SGLANG_PYTHON"] = str(write_python(folder, folder, plain=True))
        adapter = load(context(write_embedder("qwen3", folder)))
        try:
            seconds: dict[int, list[float]] = {1: [], TEXTS: []}
            units = {count: list(adapter.prepare([Item(text=WORDS)] * count, TASK)) for count in seconds}
            for _ in range(repeats):
                for count, batch in units.items():
                    started = time.perf_counter()
                    adapter.finish(batch, adapter.run(batch))
                    seconds[count].append(time.perf_counter() - started)
        finally:
            adapter.unload()
    one, many = (float(np.median(taken[repeats // 10 :])) for taken in seconds.values())
    tokens = units[1][0].cost
    print(f"{1e3 * one:.2f} ms a request of one text of {tokens} tokens (p50)")
    print(f"{1e6 * (many - one) / (TEXTS - 1):.0f} µs a further text, {1e6 * many / TEXTS:.0f} µs a text of {TEXTS}")


if __name__ == "__main__":
    main()

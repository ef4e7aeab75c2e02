"""How long the command line takes to start, and a script that encodes one text, by whole processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.bench.processes.servers import weights

BARE = "python -c pass"
SCRIPT = "a script of sentence-transformers that encodes one text"
_SCRIPT = """
import sys
from sentence_transformers import SentenceTransformer
SentenceTransformer(sys.argv[1], device="cpu").encode("hello")
"""
COMMANDS: dict[str, Sequence[str]] = {
    BARE: (sys.executable, "-c", "pass"),
    'python -c "import sie_core.cli"': (sys.executable, "-c", "import sie_core.cli"),
    SCRIPT: (sys.executable, "-c", _SCRIPT, str(weights())),
    "sie --help": (str(Path(sys.executable).with_name("sie")), "--help"),
}


def measure(repeats: int) -> dict[str, float]:
    """Run each command `repeats` times, in turns, after one run that is not counted; return median milliseconds."""
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeats + 1):
        for name, command in COMMANDS.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            taken[name].append((time.perf_counter() - began) * 1000)
    return {name: median(times[1:]) for name, times in taken.items()}

"""The float32 vectors of sentence-transformers and the tokens of each text, kept between runs.

`python -m tests.bench.workload.reference` computes them, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.bench.clients.formats import Vectors
from tests.bench.processes.environments import ROOT, SCRATCH
from tests.bench.processes.servers import weights
from tests.bench.processes.threads import environment
from tests.bench.workload.texts import digest


@dataclass(frozen=True, slots=True)
class Reference:
    """What texts should give."""

    file: Path
    """The vectors as a `.npy` file."""
    vectors: Vectors
    tokens: NDArray[np.int64]
    """Of each text, special tokens included, after truncation."""


def reference(texts: list[str], threads: int) -> Reference:
    """Compute the reference of texts, or read it."""
    file = SCRATCH / f"reference-{digest(texts)}.npy"
    counts = file.with_suffix(".tokens.npy")
    if not counts.is_file():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.bench.workload.reference", str(file), str(weights())]
        subprocess.run(command, input=json.dumps(texts), text=True, check=True, cwd=ROOT, env=environment(threads))
    return Reference(file, np.load(file), np.load(counts))


def main() -> None:
    from sentence_transformers import SentenceTransformer

    file, texts = Path(sys.argv[1]), json.loads(sys.stdin.read())
    model = SentenceTransformer(sys.argv[2], device="cpu")
    vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    encoded = model.tokenizer(texts, truncation=True, max_length=model.max_seq_length)["input_ids"]
    np.save(file, np.asarray(vectors, np.float32))
    np.save(file.with_suffix(".tokens.npy"), np.array([len(ids) for ids in encoded]))


if __name__ == "__main__":
    main()

"""sentence-transformers in process.

`python -m tests.bench.without_server.sentence_transformers_speed` reads a job from stdin.
"""

from __future__ import annotations

from typing import Any

from tests.bench.processes.children import answer, read_job
from tests.bench.without_server.in_process import BATCH, speeds


def main() -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    job = read_job()
    torch.set_num_threads(job["threads"])
    model = SentenceTransformer(job["weights"], device="cpu")

    def encode(texts: list[str]) -> Any:
        return model.encode(texts, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)

    answer(speeds(encode, job))


if __name__ == "__main__":
    main()

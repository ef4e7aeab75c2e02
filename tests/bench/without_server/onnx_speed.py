"""A bare ONNX Runtime session over the fused float32 graph, in infinity's environment, sorted and padded.

`python -m tests.bench.without_server.onnx_speed` reads a job from stdin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.processes.children import answer, read_job
from tests.bench.without_server.in_process import BATCH, speeds

MOST_TOKENS = 256
"""What sentence-transformers truncates MiniLM's input to."""


class Session:
    """Tokeniser, graph, mean pooling, normalisation.

    Args:
        graph: The ONNX file.
        weights: The folder with `tokenizer.json`.
        threads: Of a forward pass.
    """

    def __init__(self, graph: Path, weights: Path, threads: int) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(weights / "tokenizer.json"))
        self._tokenizer.enable_truncation(MOST_TOKENS)
        self._tokenizer.enable_padding()

    def encode(self, texts: list[str]) -> Any:
        """Encode texts in batches of similar length."""
        order = np.argsort([-len(text) for text in texts], kind="stable")
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        vectors = np.concatenate([self._batch([texts[place] for place in batch]) for batch in batches])
        return vectors[np.argsort(order, kind="stable")]

    def _batch(self, texts: list[str]) -> Any:
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([each.ids for each in encoded])
        mask = np.array([each.attention_mask for each in encoded])
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (states,) = self._session.run(None, feeds)
        weights = mask[..., None].astype(np.float32)
        pooled = (states * weights).sum(axis=1) / weights.sum(axis=1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def main() -> None:
    job = read_job()
    answer(speeds(Session(Path(job["graph"]), Path(job["weights"]), job["threads"]).encode, job))


if __name__ == "__main__":
    main()

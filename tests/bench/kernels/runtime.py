"""MiniLM in process by one runtime: tokens a second in batches of some sizes, tokenising and pooling included.

`python -m tests.bench.kernels.runtime` reads a job from stdin; it runs in the runtime's own environment.
"""

from __future__ import annotations

import time
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tests.bench.processes.children import answer, read_job

MOST_TOKENS = 256
"""What sentence-transformers truncates MiniLM's input to."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class Runtime(Protocol):
    """Encodes one batch of texts: normalised vectors `[texts, dims]`."""

    def encode(self, texts: list[str]) -> Any: ...


class Family:
    """A family of SIE, without an engine."""

    def __init__(self, precision: str, threads: int) -> None:
        from sie_core.cache import build_chain
        from sie_core.catalog import build_catalog
        from sie_core.catalog.fetching import fetch_model
        from sie_core.catalog.loading import load_adapter
        from sie_core.cli.composition.compose import find_plugins, read_settings
        from sie_core.contracts import Device, LoadContext, Task

        settings, device = read_settings(), Device("cpu")
        plugins = find_plugins(settings)
        resolved = build_catalog(settings, plugins).resolve("sentence-transformers/all-MiniLM-L6-v2")
        fetched = fetch_model(resolved, build_chain(settings, plugins), plugins, device)
        assert fetched.weights is not None
        assert fetched.card is not None
        context = LoadContext(
            model=resolved,
            device=device,
            precision=precision,
            weights=fetched.weights.folder,
            card=plugins.informed(fetched.card),
            threads=threads,
            runners=plugins.runners,
        )
        self._adapter, _ = load_adapter(fetched, context, plugins)
        self._task = Task("encode", output_types=("dense",))
        self.served = f"{self._adapter.facts.notes['runner']}, {self._adapter.facts.precision}"

    def encode(self, texts: list[str]) -> Any:
        from sie_core.contracts import Item

        units = list(self._adapter.prepare([Item(text=text) for text in texts], self._task))
        outputs = self._adapter.finish(units, self._adapter.run(units))
        return np.stack([each.dense for each in outputs])


class Graph:
    """A graph of padded batches."""

    def __init__(self, weights: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(weights / "tokenizer.json"))
        self._tokenizer.enable_truncation(MOST_TOKENS)
        self._tokenizer.enable_padding()

    def encode(self, texts: list[str]) -> Any:
        encoded = self._tokenizer.encode_batch(texts)
        ids, mask = (np.array([getattr(each, name) for each in encoded]) for name in ("ids", "attention_mask"))
        states = self.run(dict(zip(INPUTS, (ids, mask, np.zeros_like(ids)), strict=True)))
        weights = mask[..., None].astype(np.float32)
        pooled = (states * weights).sum(axis=1) / weights.sum(axis=1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    def run(self, feeds: dict[str, Any]) -> Any:
        raise NotImplementedError


class OnnxRuntime(Graph):
    """ONNX Runtime; `int8` quantises the weights of products per channel, and their inputs as they come."""

    def __init__(self, precision: str, threads: int, weights: Path, graph: Path) -> None:
        import onnxruntime
        from onnxruntime.quantization import QuantType, quantize_dynamic

        super().__init__(weights)
        if precision == "int8":
            quantised = graph.with_suffix(".int8.onnx")
            if not quantised.is_file():
                quantize_dynamic(
                    graph,
                    quantised,
                    weight_type=QuantType.QInt8,
                    per_channel=True,
                    extra_options={"DefaultTensorType": 1},  # float: fused operators tell no types
                )
            graph = quantised
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        self.served = f"{onnxruntime.__version__}, {precision}"

    def run(self, feeds: dict[str, Any]) -> Any:
        return self._session.run(None, feeds)[0]


class OpenVino(Graph):
    """OpenVINO; `precision` is the hint that it takes."""

    def __init__(self, precision: str, threads: int, weights: Path, graph: Path) -> None:
        import openvino

        super().__init__(weights)
        options = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        self._compiled = openvino.Core().compile_model(str(graph), "CPU", options)
        served = self._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        self.served = f"{openvino.__version__.partition('-')[0]}, {served}"

    def run(self, feeds: dict[str, Any]) -> Any:
        return self._compiled(feeds)[self._compiled.output(0)]


def make(job: dict[str, Any]) -> Any:
    """Load the job's runtime."""
    precision, threads, weights = job["precision"], job["threads"], Path(job["weights"])
    if job["runtime"] == "onnxruntime":
        return OnnxRuntime(precision, threads, weights, Path(job["graph"]))
    if job["runtime"] == "openvino":
        return OpenVino(precision, threads, weights, Path(job["graph"]))
    return Family(precision, threads)


def main() -> None:
    job = read_job()
    runtime, found = make(job), []
    for kind, given in job["kinds"].items():
        texts, tokens, expected = given["texts"], given["tokens"], np.load(given["reference"])
        for size in job["sizes"]:
            batches = [range(start, start + size) for start in range(0, len(texts) - size + 1, size)]
            done, least = 0, 1.0
            runtime.encode([texts[place] for place in batches[-1]])
            started = time.perf_counter()
            for batch in cycle(batches):
                vectors = runtime.encode([texts[place] for place in batch])
                done += sum(tokens[place] for place in batch)
                least = min(least, float((vectors * expected[list(batch)]).sum(axis=1).min()))
                if (seconds := time.perf_counter() - started) >= job["seconds"]:
                    break
            found.append({"kind": kind, "size": size, "tokens_s": done / seconds, "least_cosine": least})
    answer({"served": runtime.served, "cells": found})


if __name__ == "__main__":
    main()

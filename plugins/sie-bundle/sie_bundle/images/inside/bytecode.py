"""Compiles what is installed: a root that is read-only never gets bytecode later.

A pyc depends on what its process compiled before it, as constants that are shared are written as such. So the files are
dealt to a fixed number of processes, each in one order: on any number of cores the same bytes come out.
"""

from __future__ import annotations

import os
import py_compile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

SHARDS = 8
LEFT_AS_SOURCE = ("pygments", "setuptools", "torch/_inductor", "torch/onnx", "torch/testing/_internal", "torchgen")
"""What no server imports, or rarely: it is there, without bytecode that is as large as it."""


def compile_layers(layers: Sequence[Path]) -> None:
    """Compile every module below site-packages of each layer; one that does not compile here is left out."""
    jobs = [(layer, number) for layer in layers for number in range(SHARDS)]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), max_tasks_per_child=1) as pool:
        list(pool.map(_compile, jobs))


def _compile(job: tuple[Path, int]) -> None:
    layer, number = job
    for file in sorted(_modules(layer))[number::SHARDS]:
        try:
            py_compile.compile(
                str(file),
                dfile=f"/{file.relative_to(layer)}",
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        except (py_compile.PyCompileError, ValueError):
            # Templates and files for another Python, which nothing imports.
            continue


def _modules(layer: Path) -> Iterator[Path]:
    for site in layer.glob("opt/*/lib/python3.*/site-packages"):
        left = [site / each for each in LEFT_AS_SOURCE]
        yield from (file for file in site.rglob("*.py") if not any(file.is_relative_to(each) for each in left))

"""What no server needs of the wheels it is made of: tests, headers, programs of tests, sources of compiled modules."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

FOLDERS = (
    "torch/include",
    "torch/share",
    "torch/test",
    "torch/lib/libshm",
    "torch/lib/libshm_windows",
    "torch/bin/upgrader_models",
    *(
        f"{library}/**/tests"
        for library in ("networkx", "numpy", "obstore", "pandas", "scipy", "sklearn", "sympy", "transformers")
    ),
    "sklearn/datasets/data",
    "sklearn/datasets/images",
    "sympy/parsing/autolev/test-examples",
)
"""Below site-packages."""
KEPT = frozenset({"torch/bin/torch_shm_manager"})
"""Without it every load fails, while the server says that it is ready: torch looks for it at import."""
FILES = (
    "torch/bin/*",
    "torch/lib/*.a",
    "torch/lib/libaoti_custom_ops.so",
    "torch/lib/libbackend_with_compiler.so",
    "torch/lib/libjitbackend_test.so",
    "torch/lib/libtorchbind_test.so",
    "**/*.h",
    "**/*.hpp",
    "**/*.c",
    "**/*.cpp",
    "**/*.cu",
    "**/*.cuh",
    "**/*.pxd",
    "**/*.pyx",
    "**/*.pyx.tp",
    "**/*.pyi",
    "**/*.lib",
    # What its maintainers generate modules from, and programs that convert checkpoints of others.
    "transformers/models/*/modular_*.py",
    "transformers/models/*/convert_*.py",
)
COMPILES = ("triton", "nvidia", "sglang", "flashinfer", "tvm_ffi", "deep_gemm", "sgl_kernel")
"""Packages that compile on the machine they serve on: they keep headers and sources."""


def prune(layer: Path) -> None:
    """Remove from a layer what `FOLDERS` and `FILES` name."""
    for site in layer.glob("opt/*/lib/python3.*/site-packages"):
        for folder in [found for pattern in FOLDERS for found in site.glob(pattern)]:
            shutil.rmtree(folder, ignore_errors=True)
        for file in list(_files(site)):
            file.unlink(missing_ok=True)


def _files(site: Path) -> Iterator[Path]:
    for pattern in FILES:
        for file in site.glob(pattern):
            name = file.relative_to(site).as_posix()
            if name not in KEPT and file.is_file() and name.partition("/")[0] not in COMPILES:
                yield file

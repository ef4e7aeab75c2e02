"""Built-in plugin: the values of `output_dtype`."""

from __future__ import annotations

from collections.abc import Sequence

from sie_core.contracts import CONTRACT_VERSION, OutputDtype
from sie_core.hookspecs import hookimpl
from sie_core.postprocess import OUTPUT_DTYPES

__all__ = ["CONTRACT_VERSION", "sie_output_dtypes"]


@hookimpl
def sie_output_dtypes() -> Sequence[OutputDtype]:
    """Register `float32`, `float16`, `int8`, `uint8`, `binary` and `ubinary`."""
    return OUTPUT_DTYPES

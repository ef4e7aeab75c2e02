"""Built-in plugin: the values of `output_dtype`."""

from __future__ import annotations

from collections.abc import Sequence

from sie_core.contracts import OutputDtype
from sie_core.hookspecs import hookimpl
from sie_core.postprocess import OUTPUT_DTYPES

__all__ = ["INTERFACES", "sie_output_dtypes"]

INTERFACES = ("sie.dtype/1",)


@hookimpl
def sie_output_dtypes() -> Sequence[OutputDtype]:
    """Register `float32`, `float16`, `int8`, `uint8`, `binary` and `ubinary`."""
    return OUTPUT_DTYPES

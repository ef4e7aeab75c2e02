"""Postprocessing of outputs: one output is derived from another, then arrays are cast or quantised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts.backend.requests import InputType, OutputType
from sie_core.contracts.family.families import Option
from sie_core.contracts.family.outputs import ItemOutput


class Converter(Protocol):
    """Makes one model's `target` output of its `source` output. Called on CPU threads, several at once."""

    @property
    def dims(self) -> int:
        """Dimensions of the target."""
        ...

    def convert(self, output: ItemOutput, input_type: InputType | None) -> ItemOutput:
        """Return an output with the target filled in; `output` has the source and must not be modified.

        Args:
            output: The adapter's output for one item; all numbers are finite.
            input_type: As in `Task.input_type`; None means neither query nor document.
        """
        ...


@dataclass(frozen=True, slots=True)
class Postprocessor:
    """A way to make one output of another, e.g. MUVERA: one dense vector of a multi-vector.

    The adapter computes `source` instead of `target`, so requests with and without it share batches.
    """

    name: str
    """Name of the option that enables it, in a request or a profile's `runtime`.

    A profile's `loadtime` holds its parameters as `<name>_config`, so that all vectors of an index are made alike.
    """
    source: OutputType
    target: OutputType
    _: KW_ONLY
    create: Callable[[Mapping[str, Any], int], Converter]
    """Makes the converter of `<name>_config`, each entry checked against `parameters`, and of the source's dims.

    Called for every profile that uses it and whenever models are described, on any thread. Expensive work belongs into
    the first `convert`. A `ValueError` reports parameters that contradict each other.
    """
    parameters: tuple[Option, ...] = ()
    """Options that `<name>_config` may hold; their stage is `load`."""


@dataclass(frozen=True, slots=True)
class OutputDtype:
    """One value of `output_dtype`.

    `cast` takes float32 of shape (..., dims) and returns the final array; rows are independent.
    """

    name: str
    label: str
    """The `dtype` label on the wire, e.g. `binary` for `ubinary` too."""
    cast: Callable[[NDArray[np.float32]], NDArray[Any]]
    _: KW_ONLY
    cast_sparse: Callable[[NDArray[np.float32]], NDArray[Any]] | None = None
    """For the values of a sparse vector; None leaves them float32."""
    sparse_label: str = "float32"

"""SMVE: one sparse vector per multi-vector, for engines that search inverted lists.

Each repetition has `width` random directions. A token counts in the `k` directions of its largest projections, with the
projection as its value. A direction sums the values of a query's tokens, and averages those of a document's tokens.
Multi-vectors with similar tokens share directions, so their dot product grows with late interaction.

Every random draw is part of the wire contract: vectors by other servers with equal parameters are comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import InputType, ItemOutput, Option, Postprocessor, SparseVector

MOST_BYTES = 512 * 2**20
"""Bound on the random directions of one parameter set."""
PRODUCTS_AT_ONCE = 2**22
"""Bound on the products of tokens with directions in memory: 16 MiB."""
_PARAMETER_SETS_KEPT = 2
"""Sets of parameters whose directions stay in memory."""


@dataclass(frozen=True, slots=True)
class SmveParameters:
    """The parameters that sparse vectors must share to be comparable."""

    width: int = 65536
    """Random directions of a repetition."""
    k: int = 32
    """Number of directions in which a token counts."""
    num_repetitions: int = 1
    seed: int = 42
    max_nonzeros: int | None = None
    """Number of largest entries that are kept; None keeps all."""


class Smve:
    """Encodes multi-vectors of `token_dims` dimensions; safe on several threads.

    Raises:
        ValueError: `k` is above `width`, or the directions need more than `MOST_BYTES`.
    """

    def __init__(self, parameters: SmveParameters, token_dims: int) -> None:
        self.parameters = parameters
        self.token_dims = token_dims
        self.dims = parameters.num_repetitions * parameters.width
        if parameters.k > parameters.width:
            raise ValueError(f"k {parameters.k} is above width {parameters.width}; lower k")
        needed = 4 * self.dims * token_dims
        if needed > MOST_BYTES:
            raise ValueError(
                f"num_repetitions {parameters.num_repetitions} x width {parameters.width} x {token_dims} dimensions "
                f"need {needed / 2**20:.0f} MiB of directions; {MOST_BYTES >> 20} MiB are allowed. Lower one of them"
            )

    def convert(self, output: ItemOutput, input_type: InputType | None) -> ItemOutput:
        """Make the sparse vector of a multi-vector; whatever is not a query is a document."""
        assert output.multivector is not None
        return ItemOutput(sparse=self.encode(output.multivector, is_query=input_type == "query"))

    def encode(self, tokens: NDArray[Any], *, is_query: bool) -> SparseVector:
        """Encode tokens of shape (tokens, token_dims); without tokens there are no entries."""
        places, values = self._contributions(np.asarray(tokens, dtype=np.float32))
        places, values = places[values != 0.0], values[values != 0.0]
        indices, entry = np.unique(places, return_inverse=True)
        sums: NDArray[Any] = np.bincount(entry, values, minlength=len(indices))
        if not is_query:
            sums = sums / np.bincount(entry, minlength=len(indices))
        kept = np.flatnonzero(sums)
        most = self.parameters.max_nonzeros
        if most is not None and len(kept) > most:
            kept = np.sort(kept[np.argsort(-np.abs(sums[kept]), kind="stable")[:most]])
        return SparseVector(indices[kept].astype(np.int32), sums[kept].astype(np.float32), self.dims)

    @cached_property
    def _directions(self) -> NDArray[np.float32]:
        return _directions(self.parameters, self.token_dims)

    def _contributions(self, tokens: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """List each token's contributions over all repetitions: flat arrays of places and values."""
        width, k = self.parameters.width, self.parameters.k
        places, values = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.float32)]
        step = max(1, PRODUCTS_AT_ONCE // width)
        for start in range(0, len(tokens), step):
            part = tokens[start : start + step]
            for repetition, directions in enumerate(self._directions):
                products = part @ directions
                columns = np.argpartition(products, width - k, axis=1)[:, width - k :]
                places.append((repetition * width + columns).ravel())
                values.append(np.take_along_axis(products, columns, axis=1).ravel())
        return np.concatenate(places), np.concatenate(values)


@lru_cache(maxsize=_PARAMETER_SETS_KEPT)
def _directions(parameters: SmveParameters, token_dims: int) -> NDArray[np.float32]:
    """Draw unit vectors: shape (num_repetitions, token_dims, width). Models of equal parameters share them."""
    drawn = np.empty((parameters.num_repetitions, token_dims, parameters.width), dtype=np.float32)
    for repetition, directions in enumerate(drawn):
        rng = np.random.default_rng(parameters.seed + repetition)
        rng.standard_normal(directions.shape, dtype=np.float32, out=directions)
        directions /= np.linalg.norm(directions, axis=0)
    return drawn


def _create(config: Mapping[str, Any], token_dims: int) -> Smve:
    return Smve(SmveParameters(**config), token_dims)


SMVE = Postprocessor(
    name="smve",
    source="multivector",
    target="sparse",
    create=_create,
    parameters=(
        Option("width", "load", int, description="Random directions of a repetition; 65536 unless set.", minimum=1),
        Option("k", "load", int, description="How many of them a token counts in; 32 unless set.", minimum=1),
        Option(
            "num_repetitions",
            "load",
            int,
            description="Independent sets of directions; 1 unless set.",
            minimum=1,
            maximum=64,
        ),
        Option("seed", "load", int, description="Of every random draw; 42 unless set.", minimum=0, maximum=2**63 - 1),
        Option(
            "max_nonzeros", "load", (int, type(None)), description="Keep so many entries, the largest ones.", minimum=1
        ),
    ),
)
"""Register it with `sie_postprocessors`."""

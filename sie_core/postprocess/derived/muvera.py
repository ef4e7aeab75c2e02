"""MUVERA: one dense vector per multi-vector, whose dot products approximate late interaction.

Fixed dimensional encodings of Dhulipala et al., "MUVERA: Multi-Vector Retrieval via Fixed Dimensional Encodings" (arXiv
2405.19504). Each repetition cuts space into partitions by random hyperplanes (SimHash). Within each partition, a
query's tokens are summed and a document's averaged. The dot product of the two estimates, for every query token, its
match with the document tokens around it.

A document's partition without tokens stays zero, or, with `fill_empty_partitions`, takes the token on the same side of
the most hyperplanes, as in section 2.1 of the paper. Filling is off by default. Every default and random draw is part
of the wire contract: encodings by other servers with equal parameters are comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import InputType, ItemOutput, Option, Postprocessor

MOST_BYTES = 64 * 2**20
"""Bound on the random projections of one parameter set."""
ENTRIES_AT_ONCE = 2**16
"""Entries of an encoding that are computed at a time: 256 KiB."""
MEMBERSHIPS_AT_ONCE = 2**20
"""Bound on the entries of the token-to-partition matrix: 4 MiB."""
_PARAMETER_SETS_KEPT = 4
"""Sets of parameters whose projections stay in memory."""


@dataclass(frozen=True, slots=True)
class MuveraParameters:
    """The parameters that encodings must share to be comparable."""

    num_repetitions: int = 40
    num_simhash_projections: int = 6
    """Hyperplanes of a repetition: 2 to that power partitions."""
    projection_dim: int | None = None
    """Dimensions to which each repetition projects a token; None keeps the token's own."""
    final_projection_dim: int | None = 10240
    """Upper bound on the dimensions of the encoding; None keeps all."""
    seed: int = 42
    normalize: bool = False
    """Normalise the encoding."""
    center_tokens: bool = False
    """Subtract the item's mean token from each of its tokens first."""
    fill_empty_partitions: bool = False
    """Copy the nearest token into a document's partitions without tokens; queries are never filled."""


@dataclass(frozen=True, slots=True)
class _Projections:
    """The random numbers of one parameter set; `r` repetitions, `k` hyperplanes, tokens of `d` dimensions."""

    hyperplanes: NDArray[np.float32]
    """Shape (d, r * k)."""
    tokens: NDArray[np.float32] | None
    """Shape (r, d, projection_dim): each dimension is mapped to one, with a random sign (Alon, Matias, Szegedy)."""
    buckets: NDArray[np.int64] | None
    """Place in the final encoding of each entry of the flat one."""
    signs: NDArray[np.float32] | None


class Muvera:
    """Encodes multi-vectors of `token_dims` dimensions; safe on several threads.

    Raises:
        ValueError: The parameters together ask for more than `MOST_BYTES`.
    """

    def __init__(self, parameters: MuveraParameters, token_dims: int) -> None:
        self.parameters = parameters
        self.token_dims = token_dims
        self._repetitions = parameters.num_repetitions
        self._partitions = 2**parameters.num_simhash_projections
        self._width = token_dims if parameters.projection_dim is None else parameters.projection_dim
        size = self._repetitions * self._partitions * self._width
        final = parameters.final_projection_dim
        self._sketched = final is not None and final < size
        self.dims = final if final is not None and final < size else size
        needed = self._bytes(size)
        if needed > MOST_BYTES:
            raise ValueError(
                f"num_repetitions {self._repetitions} x 2^{parameters.num_simhash_projections} partitions x "
                f"{self._width} dimensions need {needed / 2**20:.0f} MiB of projections; {MOST_BYTES >> 20} MiB are "
                "allowed. Lower one of them, or set projection_dim"
            )

    def convert(self, output: ItemOutput, input_type: InputType | None) -> ItemOutput:
        """Make the dense vector of a multi-vector; whatever is not a query is a document."""
        assert output.multivector is not None
        dense = self.encode(output.multivector, is_query=input_type == "query")
        return ItemOutput(dense=dense, normalized=self.parameters.normalize)

    def encode(self, tokens: NDArray[Any], *, is_query: bool) -> NDArray[np.float32]:
        """Encode tokens of shape (tokens, token_dims) as float32 of shape (dims,); without tokens it is zero."""
        tokens = np.asarray(tokens, dtype=np.float32)
        if not len(tokens):
            return np.zeros(self.dims, dtype=np.float32)
        if self.parameters.center_tokens:
            tokens = tokens - tokens.mean(axis=0)
        encoding = self._encode(tokens, is_query)
        if self.parameters.normalize:
            length = np.linalg.norm(encoding)
            encoding = encoding if length == 0.0 else encoding / length
        return encoding

    @cached_property
    def _projections(self) -> _Projections:
        return _projections(self.parameters, self.token_dims, self._repetitions * self._partitions * self._width)

    def _bytes(self, size: int) -> int:
        parameters = self.parameters
        by_token = parameters.num_simhash_projections + (parameters.projection_dim or 0)
        return 4 * self._repetitions * self.token_dims * by_token + (12 * size if self._sketched else 4 * size)

    def _encode(self, tokens: NDArray[np.float32], is_query: bool) -> NDArray[np.float32]:
        """Process a few repetitions at a time, so that their large arrays stay in the processor's cache."""
        random, partitions = self._projections, self._partition(tokens).T
        encoding = np.zeros(self.dims, dtype=np.float32 if random.buckets is None else np.float64)
        step = max(1, ENTRIES_AT_ONCE // (self._partitions * self._width))
        for start in range(0, self._repetitions, step):
            some = slice(start, start + step)
            projected = tokens if random.tokens is None else tokens @ random.tokens[some]
            block = self._aggregate(projected, partitions[some], is_query).ravel()
            place = slice(start * self._partitions * self._width, start * self._partitions * self._width + len(block))
            if random.buckets is None or random.signs is None:
                encoding[place] = block
            else:  # a count sketch: entries are added up in random buckets with random signs
                block *= random.signs[place]
                encoding += np.bincount(random.buckets[place], block, minlength=self.dims)
        return encoding.astype(np.float32, copy=False)

    def _aggregate(
        self, tokens: NDArray[np.float32], partitions: NDArray[np.int64], is_query: bool
    ) -> NDArray[np.float32]:
        """Sum a query's tokens of each partition, or average a document's: shape (repetitions, partitions, width).

        The sums are a product with the token-to-partition matrix. Unlike a scatter, a product releases the
        interpreter's lock and so runs in parallel with other threads.

        Args:
            tokens: Shape (tokens, width), or (repetitions, tokens, width) if each repetition has its own projection.
            partitions: Partition of each token in each repetition: shape (repetitions, tokens).
            is_query: Whether the tokens are a query's.
        """
        repetitions, count = partitions.shape
        sums = np.zeros((repetitions, self._partitions, self._width), dtype=np.float32)
        counts = np.zeros((repetitions, self._partitions, 1), dtype=np.float32)
        step = max(1, MEMBERSHIPS_AT_ONCE // (repetitions * self._partitions))
        for start in range(0, count, step):
            some = slice(start, start + step)
            where = partitions[:, some]
            members = np.zeros((repetitions, self._partitions, where.shape[1]), dtype=np.float32)
            members[np.arange(repetitions)[:, None], where, np.arange(where.shape[1])] = 1.0
            sums += members @ tokens[..., some, :]
            if not is_query:
                counts += members.sum(axis=2, keepdims=True)
        if is_query:
            return sums
        np.divide(sums, counts, out=sums, where=counts > 0)
        if self.parameters.fill_empty_partitions:
            empty = np.nonzero(counts[..., 0] == 0)
            nearest = self._nearest(partitions)[empty]
            sums[empty] = tokens[nearest] if tokens.ndim == 2 else tokens[empty[0], nearest]
        return sums

    def _nearest(self, partitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find for each partition the first of the tokens on the same side of the most hyperplanes.

        The distance is the number of differing bits (Hamming), so the search goes bit by bit: the nearest token is on
        this side of a hyperplane, or beyond it and one farther.

        Args:
            partitions: Partition of each token in each repetition: shape (repetitions, tokens).

        Returns:
            Indices of tokens, shape (repetitions, partitions).
        """
        repetitions, count = partitions.shape
        sides = partitions ^ (partitions >> 1)  # Gray code of the index: a bit per hyperplane
        distances = np.full((repetitions, self._partitions), self._partitions * count, dtype=np.int64)
        # In units of `count`, with the token's index as the remainder: the minimum selects the first of the nearest
        # tokens.
        np.minimum.at(distances, (np.arange(repetitions)[:, None], sides), np.arange(count))
        for bit in range(self.parameters.num_simhash_projections):
            halves = distances.reshape(repetitions, -1, 2, 1 << bit)
            np.minimum(halves, halves[:, :, ::-1] + count, out=halves)
        numbers = np.arange(self._partitions)
        nearest: NDArray[np.int64] = (distances % count)[:, numbers ^ (numbers >> 1)]
        return nearest

    def _partition(self, tokens: NDArray[np.float32]) -> NDArray[np.int64]:
        """Find each token's partition in each repetition, numbered in Gray code: shape (tokens, repetitions)."""
        above = (tokens @ self._projections.hyperplanes > 0).reshape(len(tokens), self._repetitions, -1)
        index = np.zeros((len(tokens), self._repetitions), dtype=np.int64)
        for bit in np.moveaxis(above, 2, 0):
            index = (index << 1) + (bit ^ (index & 1))
        return index


@lru_cache(maxsize=_PARAMETER_SETS_KEPT)
def _projections(parameters: MuveraParameters, token_dims: int, size: int) -> _Projections:
    """Draw the random numbers; profiles and models of equal parameters share them."""
    repetitions = range(parameters.num_repetitions)
    hyperplanes = [
        np.random.default_rng(parameters.seed + r).normal(0.0, 1.0, (token_dims, parameters.num_simhash_projections))
        for r in repetitions
    ]
    tokens = None
    if parameters.projection_dim is not None:
        tokens = np.stack(
            [_signed_choice(parameters.seed + r, token_dims, parameters.projection_dim) for r in repetitions]
        )
    buckets = signs = None
    final = parameters.final_projection_dim
    if final is not None and final < size:
        rng = np.random.default_rng(parameters.seed)
        buckets = rng.integers(0, final, size=size)
        signs = rng.choice(np.array([-1.0, 1.0], dtype=np.float32), size=size)
    return _Projections(np.concatenate(hyperplanes, axis=1).astype(np.float32), tokens, buckets, signs)


def _signed_choice(seed: int, token_dims: int, projection_dim: int) -> NDArray[np.float32]:
    """Draw a matrix of shape (token_dims, projection_dim) with one +1 or -1 in each row."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, projection_dim, size=token_dims)
    matrix = np.zeros((token_dims, projection_dim), dtype=np.float32)
    matrix[np.arange(token_dims), columns] = rng.choice([-1, 1], size=token_dims)
    return matrix


def _create(config: Mapping[str, Any], token_dims: int) -> Muvera:
    return Muvera(MuveraParameters(**config), token_dims)


_NULL = type(None)
MUVERA = Postprocessor(
    name="muvera",
    source="multivector",
    target="dense",
    create=_create,
    parameters=(
        Option(
            "num_repetitions", "load", int, description="Independent partitions of space; 40 unless set.", minimum=1
        ),
        Option(
            "num_simhash_projections",
            "load",
            int,
            description="Hyperplanes of a repetition, for 2 to that power partitions; 6 unless set.",
            minimum=1,
            maximum=16,
        ),
        Option(
            "projection_dim",
            "load",
            (int, _NULL),
            description="Project each token to so many dimensions first.",
            minimum=1,
        ),
        Option(
            "final_projection_dim",
            "load",
            (int, _NULL),
            description="The size of the vector, unless it is smaller by itself; 10240 unless set, null for no bound.",
            minimum=1,
        ),
        Option("seed", "load", int, description="Of every random draw; 42 unless set.", minimum=0, maximum=2**63 - 1),
        Option("normalize", "load", bool, description="Give the vector unit length; false unless set."),
        Option("center_tokens", "load", bool, description="Subtract the item's mean token first; false unless set."),
        Option(
            "fill_empty_partitions",
            "load",
            bool,
            description="Give a document's partitions without tokens the nearest token, as the paper does; false "
            "unless set.",
        ),
    ),
)
"""Register it with `sie_postprocessors`."""

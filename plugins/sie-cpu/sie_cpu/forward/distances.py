"""Relative positions by the distance of two tokens: DeBERTa's tables (arXiv 2006.03654), and biases in buckets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sie_text.recipe import NotUnderstoodError

from sie_cpu.checkpoint.model import Described
from sie_cpu.packing import Dense, Factors, Floats

OWN = ("attention.self.pos_key_proj", "attention.self.pos_query_proj")


class Distances:
    """The rows of a table of `2 * span` relative positions that the distances of a sequence have.

    Distances up to half of `buckets` have a row each; farther ones share rows, up to `farthest`.
    """

    def __init__(self, span: int, buckets: int, farthest: int) -> None:
        self._span, self._buckets, self._farthest = span, buckets, farthest
        self.own: int = (span if buckets <= 0 else min(span, buckets // 2 + 1)) - 1
        """Distances up to this one, either way, have separate, adjacent rows."""
        self.farthest: int = max(span, farthest)
        """Distances beyond it have its row, if they are `bounded`."""
        ends = self.rows(self.farthest + 1)[[0, -1]].tolist()
        self.bounded: bool = ends == [0, 2 * span - 1]
        """Whether `farthest` has the first and the last row of the table, so that no distance beyond it has another."""

    def rows(self, length: int) -> NDArray[np.int64]:
        """Return the rows of distances `1 - length` to `length - 1`: int64 `[2 * length - 1]`, ascending."""
        distances = np.arange(1 - length, length)
        if self._buckets > 0 and self._farthest > 0:
            distances = _in_log_buckets(distances, self._buckets, self._farthest)
        return np.clip(distances + self._span, 0, 2 * self._span - 1)


def _in_log_buckets(distances: NDArray[np.int64], buckets: int, farthest: int) -> NDArray[np.int64]:
    """Number distances: near ones as they are, farther ones by their logarithm, in float32 as in training."""
    middle = buckets // 2
    size = np.where((distances < middle) & (distances > -middle), middle - 1, np.abs(distances)).astype(np.float32)
    grown = np.ceil(np.log(size / np.float32(middle)) / np.float32(math.log((farthest - 1) / middle)) * (middle - 1))
    far = (grown + middle) * np.sign(distances)
    return np.where(size <= middle, distances, far).astype(np.int64)


class RelativePositions:
    """The relative positions of a DeBERTa v2 or v3 that attends to them both ways."""

    def __init__(self, model: Described) -> None:
        """Read the embeddings of positions, and which distances have them.

        Raises:
            NotUnderstoodError: The model does not attend to positions both ways.
        """
        settings, config = model.settings, model.settings.config
        stated = config.get("pos_att_type") or ()
        kinds = stated.split("|") if isinstance(stated, str) else stated
        if {str(kind).strip().lower() for kind in kinds} != {"c2p", "p2c"}:
            raise NotUnderstoodError("its attention does not look at relative positions both ways")
        farthest = int(config.get("max_relative_positions", -1))
        farthest = farthest if farthest >= 1 else int(config["max_position_embeddings"])
        buckets = int(config.get("position_buckets", -1))
        rows = 2 * (buckets if buckets > 0 else farthest)
        self._model = model
        self.embeddings: Floats = model.numbers("encoder.rel_embeddings.weight", rows, settings.hidden)
        """float32 `[2 * span, hidden]`."""
        if "layer_norm" in str(config.get("norm_rel_ebd", "none")).lower():
            norm = model.norm("encoder.LayerNorm", settings.hidden, rms=False)
            self.embeddings = _normalised(self.embeddings, norm.weight, norm.bias, norm.epsilon)
        self.distances = Distances(len(self.embeddings) // 2, buckets, farthest)
        shared = (settings.row.joined[1], settings.row.joined[0])
        self.names: Sequence[str] = shared if config.get("share_att_key") else OWN
        """The linear layers of each layer that make keys and queries of positions."""
        self._layers = [[self._dense(number, name) for name in self.names] for number in range(settings.count)]

    @property
    def count(self) -> int:
        """Rows of the table."""
        return len(self.embeddings)

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """Output and input sizes of all layers, by dotted name below the model."""
        below = self._model.settings.row.layers
        return {
            f"{below}.{number}.{name}": (dense.weight.shape[0], dense.weight.shape[1])
            for number, layers in enumerate(self._layers)
            for name, dense in zip(self.names, layers, strict=True)
        }

    def projected(self, number: int, factors: Mapping[str, Factors] | None = None) -> tuple[Floats, Floats]:
        """Compute the keys and the queries of positions of one layer, each float32 `[2 * span, heads * head_size]`.

        `factors` of a LoRA adapter are keyed by the names of linear layers.
        """
        given = factors or {}
        keys, queries = (
            self._through(dense, given.get(name)) for name, dense in zip(self.names, self._layers[number], strict=True)
        )
        return keys, queries

    def _dense(self, number: int, name: str) -> Dense:
        settings = self._model.settings
        return self._model.dense(
            f"{settings.row.layers}.{number}.{name}", settings.heads * settings.head_size, settings.hidden
        )

    def _through(self, dense: Dense, factors: Any) -> Floats:
        made: Floats = self.embeddings @ dense.weight.all().T
        if dense.bias is not None:
            made += dense.bias
        if factors is not None:
            made += self.embeddings @ np.asarray(factors.lower).T @ np.asarray(factors.upper).T
        return made


def biases_of(model: Described) -> Floats | None:
    """Read the biases of attention scores by the place of the key minus that of the query.

    Returns:
        float32 `[heads, 2 * farthest + 1]`; those beyond are as at the ends. None if the model has none.

    Raises:
        NotUnderstoodError, ModelLoadError: As `Described.find`.
    """
    settings, stated = model.settings, model.settings.row.bias
    if stated is None:
        return None
    farthest = stated.farthest if isinstance(stated.farthest, int) else int(settings.config[stated.farthest])
    table = model.numbers(f"{stated.table}.weight", None, settings.heads)
    return table[_bias_buckets(np.arange(-farthest, farthest + 1), len(table), farthest)].T


def _bias_buckets(distances: NDArray[np.int64], buckets: int, farthest: int) -> NDArray[np.int64]:
    """Number the buckets of distances (arXiv 1910.10683, section 2.1): half for each direction.

    Half of those are of one distance each; the others grow by a constant factor up to `farthest`.
    """
    directed = buckets // 2
    single = directed // 2
    size = np.abs(distances)
    # In float32 as in training: at the edges of buckets another logarithm would round elsewhere.
    share = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(single)) / np.float32(
        math.log(farthest / single)
    )
    shared = single + (share * np.float32(directed - single)).astype(np.int64)
    found: NDArray[np.int64] = np.where(size < single, size, np.minimum(shared, directed - 1))
    return found + directed * (distances > 0)


def _normalised(rows: Floats, weight: Floats, bias: Floats | None, epsilon: float) -> Floats:
    """Apply LayerNorm to each row, in float64."""
    wide = rows.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    found = centred / np.sqrt((centred**2).mean(1, keepdims=True) + epsilon) * weight
    normalised: Floats = (found if bias is None else found + bias).astype(np.float32)
    return normalised

"""Token ids to the states of the first layer, and to rotary angles; tables are looked up in the mapped files."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from sie_text.recipe import NotUnderstoodError

from sie_cpu.checkpoint.mapped import Tensor
from sie_cpu.checkpoint.model import Described
from sie_cpu.forward.batch import NOTHING, Angles, Entered, Floats, Ids
from sie_cpu.packing import Dense, Factors, NormNumbers
from sie_cpu.structures import Embeddings, Norm, Table

AT_ONCE = 1024
"""Tokens that are embedded together, so that intermediate results stay in the cache."""


class TokenEntry:
    """Computes the kernels' input from tokens."""

    def __init__(self, model: Described) -> None:
        """Find the tables.

        Raises:
            NotUnderstoodError, ModelLoadError: As `Described.find`.
        """
        settings, form, config = model.settings, model.settings.form, model.settings.config
        self._settings = settings
        words = model.find(f"{form.words}.weight", None, None)
        narrow = words.shape[1]

        def table(name: str | None) -> Tensor | None:
            return None if name is None else model.find(f"{name}.weight", None, narrow).tensor

        self.words = words.tensor
        self.types = table(form.types if config.get("type_vocab_size") else None)
        positions = form.positions if config.get("position_biased_input", True) else None
        self.positions = table(positions)
        if form.positions and f"{form.positions}.weight" in model.parts and positions is None:
            model.used.add(f"{form.positions}.weight")  # transformers leaves it out too
        others = form.others if config.get("use_task_id") else None
        self.others = None if others is None else model.find(f"{others}.weight", None, narrow).read(slice(0, 1))
        self.widened: Dense | None = None
        if form.widened and f"{form.widened}.weight" in model.parts:
            self.widened = model.dense(form.widened, settings.hidden, narrow)
        if narrow != settings.hidden and self.widened is None:
            raise NotUnderstoodError(f"its embeddings have {narrow} elements, and its states {settings.hidden}")
        size = settings.hidden if form.widened_first else narrow
        self.norm = None if form.norm is None else model.norm(form.norm, size, rms=False)
        padding = config.get("pad_token_id") if form.padding is None else form.padding
        self._padding = padding if form.after_padding and isinstance(padding, int) else None
        self.factor = np.float32(settings.hidden**0.5) if form.scaled else None
        self._embeddings, self._kept = self._described()

    @property
    def limit(self) -> int | None:
        """Tokens of a sequence that the positions allow; None for any number."""
        if self.positions is None:
            return self._settings.longest
        return self.positions.shape[0] - (0 if self._padding is None else self._padding + 1)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the tables in the files."""
        return sum(each.stored.nbytes for each in (self.words, self.types, self.positions) if each is not None)

    def position_ids(self, ids: Ids, positions: Ids) -> Ids:
        """Number tokens as the model does: as given, or as RoBERTa, from the padding token's id on.

        A padding token that a text spells out has the number of the padding row and is not counted.
        """
        padding = self._padding
        if padding is None:
            return positions
        counted = (ids != padding).astype(np.int64)
        count = counted.cumsum()
        before = (count - counted)[np.arange(len(ids)) - positions]
        numbered: Ids = (count - before) * counted + padding
        return numbered

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """The layer that widens narrow embeddings: out and in, by dotted name below the model."""
        name = self._settings.form.widened
        if self.widened is None or name is None:
            return {}
        outputs, inputs = self.widened.weight.shape
        return {name: (outputs, inputs)}

    def __call__(
        self, ids: Ids, positions: Ids, types: Ids | None, factors: Mapping[str, Factors] | None = None
    ) -> Entered:
        """Prepare a batch for the first layer.

        Args:
            ids: int64 `[tokens]`.
            positions: int64 `[tokens]`: the place of each token in its sequence, from 0.
            types: int64 `[tokens]`: token types; None if all are 0.
            factors: Those of a LoRA adapter, by the names of linear layers.
        """
        states = np.empty((len(ids), self._settings.hidden), dtype=np.float32)
        angles = self.angles(positions)
        numbered = None if self.positions is None else self.position_ids(ids, positions)
        typed = None if self.types is None else types
        if self._embeddings is None:
            for start in range(0, len(ids), AT_ONCE):
                some = slice(start, start + AT_ONCE)
                states[some] = self.embedded(
                    ids[some],
                    None if typed is None else typed[some],
                    None if numbered is None else numbered[some],
                    factors,
                )
            return Entered(states, NOTHING, angles)
        kept = tuple(
            None if each is None else np.ascontiguousarray(each, dtype=np.int64) for each in (ids, typed, numbered)
        )
        addresses = (None if each is None else each.ctypes.data for each in kept)
        return Entered(states, (ctypes.addressof(self._embeddings), *addresses), angles, kept)

    def angles(self, positions: Ids) -> tuple[Angles, ...]:
        """Compute cosines and sines of the rotary angles of each kind of layer."""
        found = []
        for turns in self._settings.turns.values():
            angles = positions.astype(np.float32)[:, None] * turns
            found.append(tuple(np.ascontiguousarray(np.tile(part(angles), 2)) for part in (np.cos, np.sin)))
        return tuple(found)  # type: ignore[arg-type]

    def embedded(
        self, ids: Ids, types: Ids | None, numbered: Ids | None, factors: Mapping[str, Factors] | None = None
    ) -> Floats:
        """Add up the rows of tokens: float32 `[tokens, hidden]`."""
        states = np.array(self.words.read(ids))
        if self.factor is not None:
            states *= self.factor
        if self.types is not None:
            states += self.types.read(slice(0, 1) if types is None else types)
        if self.positions is not None:
            states += self.positions.read(numbered)
        if self.others is not None:
            states += self.others
        if self.widened is not None and self._settings.form.widened_first:
            states = self._widen(states, factors)
        if self.norm is not None:
            states = layer_norm(states, self.norm)
        if self.widened is not None and not self._settings.form.widened_first:
            states = self._widen(states, factors)
        return states

    def _widen(self, states: Floats, factors: Mapping[str, Factors] | None) -> Floats:
        assert self.widened is not None
        made: Floats = states @ self.widened.weight.all().T
        if self.widened.bias is not None:
            made += self.widened.bias
        found = (factors or {}).get(str(self._settings.form.widened))
        return made if found is None else made + states @ found.lower.T @ found.upper.T

    def _described(self) -> tuple[Embeddings | None, tuple[Any, ...]]:
        """Describe the tables for the kernels if they are all there is, in float32."""
        tables = [each for each in (self.words, self.types, self.positions) if each is not None]
        plain = all(each.dtype == "F32" and each.stored.flags.aligned for each in tables)
        if not plain or self.widened is not None or self.others is not None or self.factor is not None:
            return None, ()
        rows = (
            Table() if each is None else Table(each.stored.ctypes.data, each.shape[0])
            for each in (self.words, self.types, self.positions)
        )
        if self.norm is None:
            return Embeddings(*rows, Norm(), 0.0), ()
        weight = np.ascontiguousarray(self.norm.weight)
        bias = np.zeros_like(weight) if self.norm.bias is None else np.ascontiguousarray(self.norm.bias)
        norm = Norm(weight.ctypes.data, bias.ctypes.data)
        return Embeddings(*rows, norm, self.norm.epsilon), (weight, bias)


def layer_norm(states: Floats, norm: NormNumbers) -> Floats:
    """Normalise each row in float32."""
    states = states - states.mean(1, keepdims=True)
    states /= np.sqrt((states**2).mean(1, keepdims=True) + np.float32(norm.epsilon))
    states *= norm.weight
    return states if norm.bias is None else states + norm.bias

"""Dense vectors without a transformer: the mean of the vectors of a text's tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import Adapter, Item, ItemOutput, LoadContext, ModelFacts, ModelLoadError, Task, Unit
from sie_text.adapter import HostAdapter
from sie_text.encode import TextPreparation
from sie_text.loading import Stages, matryoshka_dims, needed_card, similarities, warm_up
from sie_text.options import refuse_foreign
from sie_text.prompts import Prompts
from sie_text.recipe import NotUnderstoodError, is_sparse_router, read_routes
from sie_text.recipe.static import TABLES, StaticRecipe, read_static_recipe
from sie_text.sequences import TokenSequence
from sie_text.static.lookup import LookupEncoder
from sie_text.static.tables import Table, read_tables
from sie_text.tokenizer import TextTokenizer, load_tokenizer
from sie_text.tokenizer.files import TOKENIZER

KEY = "static"
"""The inference key: all texts share a batch."""
LEAST_LENGTH = 1e-12
"""Lower bound of the norm that a vector is divided by, as in PyTorch's `normalize`."""


def load(context: LoadContext) -> Adapter:
    """Load a model of the family `static`.

    Raises:
        ModelLoadError: With the failure's class.
    """
    card = needed_card(context)
    try:
        if is_sparse_router(card):
            encoder: Adapter = LookupEncoder.read(context, read_routes(card).lookup)
            warm_up(encoder, context, ("sparse",))
            return encoder
        return StaticEncoder.read(context, read_static_recipe(card))
    except NotUnderstoodError as reason:
        raise ModelLoadError("CONFIG", f"{context.model.id} holds no static vectors: {reason}.") from reason


class StaticEncoder(HostAdapter):
    """Averages rows of a table; special tokens are not added."""

    def __init__(self, preparation: TextPreparation, table: Table, recipe: StaticRecipe, dropped: int | None) -> None:
        """Keep the parts.

        Args:
            preparation: From items to token sequences.
            table: `[vocabulary, dims]`, of floats or int8.
            recipe: The files' recipe.
            dropped: The token that is left out of the mean.
        """
        self._preparation = preparation
        self.tokenizer = preparation.tokenizer
        self.prompts = preparation.prompts
        self._table = table
        self._recipe = recipe
        self._dropped = dropped
        self.facts = ModelFacts(("dense",))
        self._dims = min(table.shape[1], recipe.truncate_dim or table.shape[1])

    @classmethod
    def read(cls, context: LoadContext, recipe: StaticRecipe) -> StaticEncoder:
        """Read the table and its tokenizer.

        Raises:
            ModelLoadError: `CORRUPT`: the table is missing, damaged, or has other rows than there are tokens. `CONFIG`:
                there is no tokenizer.
        """
        card, config, stages = needed_card(context), context.model.config, Stages(context)
        # Both libraries read it so: other files' statements on a tokenizer do not count.
        tokenizer = load_tokenizer(replace(recipe.card, files=(TOKENIZER,)), bare=True)
        saved = tokenizer.saved_length
        if recipe.drops_unknown:
            tokenizer, saved = replace(tokenizer, cuts_start=False), None
        stages.done("tokenizer")
        table = _read_table(recipe, tokenizer)
        stages.done("weights")
        limit = config.max_sequence_length or recipe.length or saved
        preparation = TextPreparation.bare(context, tokenizer, limit)
        encoder = cls(preparation, table, recipe, tokenizer.unknown if recipe.drops_unknown else None)
        dims = warm_up(encoder, context)["dense"]
        stages.done("warm")
        looked_up = f"{table.dtype} vectors looked up by token, averaged in float32 by NumPy"
        notes = {"prompts": Prompts.of(card).note, "runner": looked_up}
        encoder.facts = ModelFacts(
            ("dense",),
            dims={"dense": dims},
            similarity=similarities(context, "dense"),
            matryoshka_dims=matryoshka_dims(config, card, dims),
            max_sequence_length=limit,
            notes={name: note for name, note in notes.items() if note},
        )
        return encoder

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; a text without tokens has a vector of zeros.

        Raises:
            InvalidInput: An item or an option is wrong.
        """
        refuse_foreign(task, self.facts.outputs)
        normalize: bool | None = task.options.get("normalize")
        for index, each in enumerate(self._preparation.sequences(items, task)):
            yield replace(each, finish_options=normalize).unit(index, KEY)

    def finish(self, units: Sequence[Unit], raw: None) -> Sequence[ItemOutput]:
        """Average the rows of each text, on CPU threads."""
        return [self._output(unit.payload) for unit in units]

    def _output(self, sequence: TokenSequence) -> ItemOutput:
        normalize: bool | None = sequence.finish_options
        ids = sequence.ids if self._dropped is None else sequence.ids[sequence.ids != self._dropped]
        vector: NDArray[Any] = np.zeros(self._table.shape[1], dtype=np.float32)
        if len(ids):
            vector = self._table[ids].astype(np.float32, copy=False).mean(axis=0)
        whole = self._dims == len(vector)
        if normalize or (normalize is None and self._recipe.normalizes):
            vector = _unit_length(vector)
        if whole or not normalize:
            unit_length = normalize if normalize is not None else self._recipe.normalizes and whole
            return ItemOutput(dense=vector[: self._dims], normalized=unit_length)
        return ItemOutput(dense=_unit_length(vector[: self._dims]), normalized=True)


def _unit_length(vector: NDArray[Any]) -> NDArray[Any]:
    return vector / np.float32(max(float(np.linalg.norm(vector)), LEAST_LENGTH))


def _read_table(recipe: StaticRecipe, tokenizer: TextTokenizer) -> Table:
    """Read one row per token: shared vectors are repeated for each token, and each is weighted by its own weight."""
    tables = read_tables(recipe.card.path, TABLES, ("mapping", "weights"))
    table = next(tables[name] for name in TABLES if name in tables)
    mapping, weights = tables.get("mapping"), tables.get("weights")
    if mapping is not None:
        table = table[mapping.astype(np.int64)]
    if weights is not None:
        table = table.astype(np.float32) * weights.astype(np.float32)[:, None]
    if table.ndim != 2 or len(table) < tokenizer.vocabulary:
        raise ModelLoadError(
            "CORRUPT",
            f"The table of vectors has the shape {table.shape}, and its tokenizer {tokenizer.vocabulary} tokens.",
        )
    return table

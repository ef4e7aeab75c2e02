"""Sparse vectors without a transformer: the weight of every token of a text, looked up (inference-free retrieval).

`RoutedEncoder` combines it with a transformer if documents pass through one. It runs on the CPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import (
    Item,
    ItemOutput,
    LoadContext,
    ModelFacts,
    ModelLoadError,
    SparseVector,
    Task,
    Unit,
)
from sie_text.adapter import HostAdapter
from sie_text.encode import TextPreparation
from sie_text.loading import needed_card, similarities
from sie_text.options import refuse_foreign
from sie_text.recipe import LookupSettings, size
from sie_text.sequences import TokenSequence
from sie_text.sparse import largest
from sie_text.static.tables import read_tables
from sie_text.tokenizer import TextTokenizer, load_tokenizer


@dataclass(frozen=True, slots=True)
class LookupKey:
    """The inference key: all look-ups share a batch."""


class LookupEncoder(HostAdapter):
    """Gives each token of a text its weight, once; special tokens are not added."""

    def __init__(self, preparation: TextPreparation, weights: NDArray[np.float32], most: int | None) -> None:
        """Keep the parts.

        Args:
            preparation: From items to token sequences.
            weights: float32 `[vocabulary]`.
            most: Number of largest weights that a vector keeps; None for all.
        """
        self._preparation = preparation
        self.tokenizer = preparation.tokenizer
        self.prompts = preparation.prompts
        self._weights = weights
        self._most = most

    @classmethod
    def read(cls, context: LoadContext, settings: LookupSettings) -> LookupEncoder:
        """Read the weights and their tokenizer.

        Raises:
            ModelLoadError: `CORRUPT`: the weights are missing or damaged. `CONFIG`: there is no tokenizer.
        """
        card, config = needed_card(context), context.model.config
        own = replace(card, path=settings.folder, config={}, files=_names(settings))
        bare = load_tokenizer(own, trust_remote_code=config.trust_remote_code, bare=True)
        weights = _read_weights(settings, bare)
        limit = config.max_sequence_length or bare.max_length
        preparation = TextPreparation.bare(context, bare, limit, limit)
        most = size(card.sentence_transformers, "max_active_dims", "config_sentence_transformers.json")
        encoder = cls(preparation, weights, most)
        encoder.facts = ModelFacts(
            ("sparse",),
            dims={"sparse": len(weights)},
            similarity=similarities(context, "sparse"),
            max_sequence_length=limit,
        )
        return encoder

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; a text without tokens has an empty vector.

        Raises:
            InvalidInput: An item or an option is wrong.
        """
        refuse_foreign(task, self.facts.outputs)
        for index, row in enumerate(self._preparation.sequences(items, task)):
            yield row.unit(index, LookupKey())

    def finish(self, units: Sequence[Unit], raw: None) -> Sequence[ItemOutput]:
        """Look every row up."""
        return [ItemOutput(sparse=self._look_up(unit.payload)) for unit in units]

    def _look_up(self, row: TokenSequence) -> SparseVector:
        indices = np.unique(row.ids)
        values = self._weights[indices]
        kept = values != 0
        vector = SparseVector(indices[kept].astype(np.int32), values[kept], len(self._weights))
        return largest(vector, self._most if row.max_active_dims is None else row.max_active_dims)


def _names(settings: LookupSettings) -> tuple[str, ...]:
    return tuple(file.name for file in settings.folder.iterdir() if file.is_file())


def _read_weights(settings: LookupSettings, tokenizer: TextTokenizer) -> NDArray[np.float32]:
    """Read one weight a token of the vocabulary."""
    vocabulary = tokenizer.vocabulary
    if settings.idf is not None:
        return _read_idf(settings, tokenizer, vocabulary)
    weights = read_tables(settings.folder, ("weight",))["weight"]
    if weights.shape != (vocabulary,):
        raise ModelLoadError(
            "CORRUPT",
            f"{settings.folder.name}/model.safetensors has weights of shape {weights.shape}, and its tokenizer "
            f"{vocabulary} tokens.",
        )
    return weights.astype(np.float32, copy=False)


def _read_idf(settings: LookupSettings, tokenizer: TextTokenizer, vocabulary: int) -> NDArray[np.float32]:
    assert settings.idf is not None
    weights = np.zeros(vocabulary, dtype=np.float32)
    try:
        idf = json.loads(settings.idf.read_bytes())
        for token, weight in idf.items():
            number = tokenizer.core.token_to_id(token)
            number = tokenizer.unknown if number is None else number
            if number is not None:
                weights[number] = weight
    except (OSError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise ModelLoadError("CORRUPT", f"{settings.idf.name} is no map of tokens to weights.") from error
    return weights

"""Sparse vectors without a transformer: the weight of every token of a text, looked up (inference-free retrieval).

It knows no other route of a model, and needs no device.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import (
    Adapter,
    Item,
    ItemOutput,
    LoadContext,
    ModelFacts,
    ModelLoadError,
    SparseVector,
    Task,
    Token,
    Unit,
)
from sie_pytorch.facts import needed_card, similarities
from sie_pytorch.heads.sparse import largest
from sie_pytorch.options import refuse_foreign
from sie_pytorch.preparation import Lengths, Preparation, TokenRow
from sie_pytorch.prompts import Prompts
from sie_pytorch.recipes.fields import size
from sie_pytorch.recipes.router import LookupSettings
from sie_pytorch.recipes.settings import TransformerSettings
from sie_pytorch.showing import show_tokens, write_texts
from sie_pytorch.tokenizer import read_tokenizer, text_tokenizer
from sie_pytorch.weights import read_named


@dataclass(frozen=True, slots=True)
class LookupKey:
    """The inference key: all look-ups share a batch."""


class LookupEncoder(Adapter):
    """Gives each token of a text its weight, once; special tokens are not added."""

    def __init__(self, preparation: Preparation, weights: NDArray[np.float32], most: int | None) -> None:
        """Keep the parts.

        Args:
            preparation: From items to rows of token ids.
            weights: float32 `[vocabulary]`.
            most: How many of its largest weights a vector keeps; None for all.
        """
        self._preparation = preparation
        self._weights = weights
        self._most = most

    @classmethod
    def load(cls, context: LoadContext) -> Adapter:
        """Unused: what looks up is part of a model."""
        raise NotImplementedError

    @classmethod
    def read(cls, context: LoadContext, settings: LookupSettings) -> LookupEncoder:
        """Read the weights and the tokenizer beside them.

        Raises:
            ModelLoadError: `CORRUPT`: the weights are missing or damaged. `CONFIG`: there is no tokenizer.
        """
        card, config = needed_card(context), context.model.config
        own = replace(card, path=settings.folder, config={}, files=_names(settings))
        tokenizer = read_tokenizer(own, TransformerSettings(), trust_remote_code=config.trust_remote_code)
        none: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        bare = replace(text_tokenizer(tokenizer, own, TransformerSettings()), head=none, tail=none)
        weights = _read_weights(settings, tokenizer)
        limit = config.max_sequence_length or bare.max_length
        preparation = Preparation(
            context.model.id,
            bare,
            Prompts.of(card),
            Lengths(limit, limit, limit, limit, 1),
            pools_prompt=True,
            takes_ids=config.accept_token_ids,
            takes_nothing=True,
        )
        most = size(card.sentence_transformers, "max_active_dims", "config_sentence_transformers.json")
        encoder = cls(preparation, weights, most)
        encoder.facts = ModelFacts(
            ("sparse",),
            dims={"sparse": len(weights)},
            similarity=similarities(context, "sparse"),
            max_sequence_length=limit,
        )
        return encoder

    def prepare(self, items: Sequence[Item], task: Task) -> Sequence[Unit]:
        """Tokenise; a text without tokens has an empty vector.

        Raises:
            InvalidInput: An item or an option is wrong.
        """
        refuse_foreign(task, self.facts.outputs)
        rows = self._preparation.rows(items, task)
        return [
            Unit(index, max(1, len(row.ids)), LookupKey(), row, tokens=len(row.ids), truncated=row.truncated)
            for index, row in enumerate(rows)
        ]

    def run(self, units: Sequence[Unit]) -> None:
        """Nothing has to be computed."""

    def await_device(self, units: Sequence[Unit], raw: None) -> bool:
        """Wait for nothing: the device takes no part in it."""
        return True

    def finish(self, units: Sequence[Unit], raw: None) -> Sequence[ItemOutput]:
        """Look every row up."""
        return [ItemOutput(sparse=self._look_up(unit.payload)) for unit in units]

    def tokenize(self, texts: Sequence[str], *, special: bool, most: int | None = None) -> Sequence[Sequence[Token]]:
        """List the tokens of texts; with `special`, those too that the tokenizer would add and no look-up counts.

        Raises:
            InvalidInput: A text is not Unicode.
        """
        return show_tokens(self._preparation.tokenizer.core, texts, special=special, most=most)

    def decode(self, ids: Sequence[Sequence[int]], *, special: bool) -> Sequence[str]:
        """Write the texts of token ids.

        Raises:
            InvalidInput: The tokenizer has no such token.
        """
        return write_texts(self._preparation.tokenizer.core, ids, special=special)

    def _look_up(self, row: TokenRow) -> SparseVector:
        indices = np.unique(row.ids)
        values = self._weights[indices]
        kept = values != 0
        vector = SparseVector(indices[kept].astype(np.int32), values[kept], len(self._weights))
        return largest(vector, self._most if row.max_active_dims is None else row.max_active_dims)


def _names(settings: LookupSettings) -> tuple[str, ...]:
    return tuple(file.name for file in settings.folder.iterdir() if file.is_file())


def _read_weights(settings: LookupSettings, tokenizer: Any) -> NDArray[np.float32]:
    """Read one weight a token of the vocabulary."""
    vocabulary = len(tokenizer.get_vocab())
    if settings.idf is not None:
        return _read_idf(settings, tokenizer, vocabulary)
    weights = read_named(settings.folder / "model.safetensors", ["weight"])["weight"]
    if tuple(weights.shape) != (vocabulary,):
        raise ModelLoadError(
            "CORRUPT",
            f"{settings.folder.name}/model.safetensors has weights of shape {tuple(weights.shape)}, and its tokenizer "
            f"{vocabulary} tokens.",
        )
    array: NDArray[np.float32] = weights.numpy()
    return array


def _read_idf(settings: LookupSettings, tokenizer: Any, vocabulary: int) -> NDArray[np.float32]:
    assert settings.idf is not None
    weights = np.zeros(vocabulary, dtype=np.float32)
    try:
        idf = json.loads(settings.idf.read_bytes())
        weights[tokenizer.convert_tokens_to_ids(list(idf))] = list(idf.values())
    except (OSError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise ModelLoadError("CORRUPT", f"{settings.idf.name} is no map of tokens to weights.") from error
    return weights

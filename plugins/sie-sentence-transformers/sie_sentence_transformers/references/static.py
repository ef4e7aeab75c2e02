"""Vectors looked up by token: by sentence-transformers' `StaticEmbedding`, and by model2vec from its own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import SimilarityFunction
from sie_text.recipe import NotUnderstoodError, StaticRecipe, is_sparse_router, read_static_recipe

from sie_core.contracts import Item, ItemOutput, LoadContext, ModelInfo, NoReferenceError, ReferenceModel, Task
from sie_sentence_transformers.references.vectors import Vectors
from sie_sentence_transformers.references.words import refuse_options, words_of

LENGTHS = ("max_seq_length", "query_max_length")
OPTIONS = frozenset({"query_template", "doc_template", "default_instruction", "normalize", *LENGTHS})
WHOLE = 10**6
"""Characters per token, by which model2vec cuts a text before tokenising: so large that nothing is cut."""


class StaticEmbeddings(Vectors):
    """A `StaticEmbedding` that sentence-transformers has loaded."""

    def __init__(self, library: Any, length: int | None) -> None:
        super().__init__(library, "dense")
        self._length = length

    @classmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> Vectors:
        """Load the table, or the weights of a sparse encoder that looks every text up.

        Raises:
            NoReferenceError: The files are model2vec's, for which this library also counts unknown tokens, or others.
        """
        if context.card is not None and is_sparse_router(context.card):
            return Vectors.load(context, served)
        if _recipe(context).drops_unknown:
            raise NoReferenceError("averages unknown tokens too, which model2vec leaves out")
        assert context.card is not None
        library = SentenceTransformer(str(context.card.path), device="cpu", local_files_only=True)
        return cls(library.float(), served.max_sequence_length)

    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Encode each text separately.

        Raises:
            NoReferenceError: The profile has an option that the library does not do.
        """
        length = words_of(task).max_length or self._length
        if length is not None:
            tokenizer = self._library[0].tokenizer
            tokenizer.enable_truncation(length, direction=(tokenizer.truncation or {}).get("direction", "right"))
        kept = {name: value for name, value in task.options.items() if name not in LENGTHS}
        return super().answer(items, replace(task, options=kept))


class Model2Vec(ReferenceModel):
    """A model that model2vec has loaded."""

    def __init__(self, library: Any, length: int | None, similarity: str) -> None:
        self._library = library
        self._length = length
        self._compared: Any = SimilarityFunction.to_similarity_pairwise_fn(similarity)
        self.gives = frozenset({"dense"})

    @classmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> Model2Vec:
        """Load the table, in float32.

        Raises:
            NoReferenceError: The files are not model2vec's.
        """
        if not _recipe(context).drops_unknown:
            raise NoReferenceError("reads its own files alone")
        from model2vec import StaticModel

        card = context.card
        assert card is not None
        library = StaticModel.from_pretrained(str(card.path))
        library.embedding = library.embedding.astype(np.float32)
        library.median_token_length = WHOLE
        said = context.model.profile.loadtime.get("similarity") or card.sentence_transformers.get("similarity_fn_name")
        return cls(library, served.max_sequence_length, said or "cosine")

    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Encode each text separately.

        Raises:
            NoReferenceError: The profile has an option that the library does not do.
        """
        refuse_options(task, OPTIONS)
        words, normalize = words_of(task), task.options.get("normalize")
        if normalize is not None:
            self._library.normalize = normalize
        texts = [f"{words.prompt or ''}{item.text or ''}{words.suffix}" for item in items]
        rows = [self._library.encode([text], max_length=words.max_length or self._length)[0] for text in texts]
        return [ItemOutput(dense=row[: task.dimensions]) for row in rows]

    def similarity(self, query: ItemOutput, document: ItemOutput) -> float:
        """Compare two vectors by the files' similarity, or by their cosine."""
        vectors = (torch.from_numpy(np.asarray(each.dense))[None] for each in (query, document))
        return float(self._compared(*vectors)[0])


def _recipe(context: LoadContext) -> StaticRecipe:
    """Read the files' facts.

    Raises:
        NoReferenceError: They are of no table of dense vectors.
    """
    assert context.card is not None
    try:
        return read_static_recipe(context.card)
    except NotUnderstoodError as reason:
        raise NoReferenceError(f"reads no such files: {reason}") from reason

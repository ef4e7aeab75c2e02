"""Dense, sparse and multi-vectors by sentence-transformers: its encoder of each kind, one text at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sie_text.options import POOLING_NAMES

from sie_core.contracts import (
    Compared,
    Item,
    ItemOutput,
    LoadContext,
    ModelCard,
    ModelInfo,
    NoReferenceError,
    ReferenceModel,
    SparseVector,
    Task,
)
from sie_sentence_transformers.references.words import (
    Words,
    limit_length,
    refuse_fallback,
    refuse_options,
    refuse_other_class,
    words_of,
)
from sie_sentence_transformers.tokenizing import obey_files
from sie_sentence_transformers.translating import readable

COMMON = frozenset(
    {"query_template", "doc_template", "default_instruction", "max_seq_length", "query_max_length", "normalize"}
)
OPTIONS: dict[Compared, frozenset[str]] = {
    "dense": COMMON | {"pooling"},
    "sparse": COMMON | {"max_active_dims"},
    "multivector": COMMON,
}
ENCODERS: dict[Compared, Any] = {
    "dense": SentenceTransformer,
    "sparse": SparseEncoder,
    "multivector": MultiVectorEncoder,
}


def open_library(
    kind: Callable[..., Any], context: LoadContext, served: ModelInfo, *, trust_remote_code: bool = False
) -> Any:
    """Load a model of the library in float32 on the CPU, from safetensors here, with the length of the one served.

    Args:
        kind: Its class, such as `SentenceTransformer`.
        context: What to load.
        served: The model it is compared with.
        trust_remote_code: Whether code that comes with the weights may run.

    Raises:
        NoReferenceError: The weights name their own class, which is ignored.
    """
    refuse_other_class(served)
    assert context.card is not None
    torch.set_num_threads(context.threads)
    runs_own = trust_remote_code and "auto_map" in context.card.config
    with nullcontext(context.card.path) if runs_own else readable(context.card) as folder:
        library = kind(
            str(folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            model_kwargs={"use_safetensors": True, "dtype": torch.float32},
        )
    obey_files(library)
    limit_length(library, context, served)
    return library


class Vectors(ReferenceModel):
    """A model that sentence-transformers has loaded."""

    def __init__(self, library: Any, kind: Compared) -> None:
        self._library = library
        self._kind = kind
        self.gives = frozenset({kind})

    @classmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> Vectors:
        """Load the encoder that the card describes.

        Raises:
            NoReferenceError: The library serves the model, or cannot load it.
        """
        refuse_fallback(served)
        assert context.card is not None
        kind = kind_of(context.card)
        trusts = context.model.config.trust_remote_code
        library = open_library(ENCODERS[kind], context, served, trust_remote_code=trusts)
        return cls(library, kind)

    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Encode each text separately.

        Raises:
            NoReferenceError: The profile has an option that the library does not do.
        """
        refuse_options(task, OPTIONS[self._kind])
        words = words_of(task)
        texts = [(item.text or "") + words.suffix for item in items]
        if self._kind == "dense":
            return [ItemOutput(dense=row) for row in self._dense(texts, words, task)]
        if self._kind == "sparse":
            arguments = {"convert_to_sparse_tensor": False, "max_active_dims": task.options.get("max_active_dims")}
            rows = self._call(task)(texts, batch_size=1, **arguments, **words.arguments)
            return [ItemOutput(sparse=sparse_of(row)) for row in np.asarray(rows)]
        normalize = task.options.get("normalize")
        if normalize is False:
            raise NoReferenceError("does not leave the scaling out")
        vectors = self._call(task)(
            texts, batch_size=1, convert_to_numpy=True, normalize_embeddings=bool(normalize), **words.arguments
        )
        return [ItemOutput(multivector=np.asarray(each)) for each in vectors]

    def similarity(self, query: ItemOutput, document: ItemOutput) -> float:
        """Compare two vectors by the similarity of the model's files, or the library's default."""
        one, other = (self._tensor(each) for each in (query, document))
        return float(self._library.similarity(one, other)[0, 0])

    def _tensor(self, output: ItemOutput) -> Any:
        if output.sparse is not None:
            assert output.sparse.dims is not None
            full = torch.zeros(1, output.sparse.dims)
            full[0, torch.from_numpy(output.sparse.indices).long()] = torch.from_numpy(output.sparse.values)
            return full
        return [output.multivector] if self._kind == "multivector" else np.asarray(output.dense)[None]

    def _dense(self, texts: Sequence[str], words: Words, task: Task) -> NDArray[np.float32]:
        normalize, pooling = task.options.get("normalize"), task.options.get("pooling")
        if pooling is not None:
            self._library[1].pooling_mode = POOLING_NAMES[pooling]
        call = self._call(task)
        if normalize is False and type(self._library[-1]).__name__ == "Normalize":
            raise NoReferenceError("does not leave the scaling out")
        rows = np.asarray(call(texts, batch_size=1, normalize_embeddings=bool(normalize), **words.arguments))
        if task.dimensions is None or task.dimensions == rows.shape[1]:
            return rows
        scaled = np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)
        cut = rows[:, : task.dimensions]
        return cut / np.linalg.norm(cut, axis=1, keepdims=True) if scaled else cut

    def _call(self, task: Task) -> Callable[..., Any]:
        calls = {"query": self._library.encode_query, "document": self._library.encode_document}
        call: Callable[..., Any] = calls.get(str(task.input_type), self._library.encode)
        return lambda *texts, **arguments: call(*texts, show_progress_bar=False, **arguments)


def kind_of(card: ModelCard) -> Compared:
    """Name the library's class of encoder for the files."""
    said = card.sentence_transformers.get("model_type")
    types = " ".join(module.type for module in card.modules)
    saved = card.architectures[0] if card.architectures and not card.modules else ""
    if said == "SparseEncoder" or ".sparse_encoder." in types or saved.endswith("ForMaskedLM"):
        return "sparse"
    if said in {"MultiVectorEncoder", "ColBERT"} or "pylate." in types or ".multi_vector_encoder." in types:
        return "multivector"
    return "multivector" if saved == "HF_ColBERT" else "dense"


def sparse_of(row: NDArray[np.float32]) -> SparseVector:
    """Take the entries of `[vocabulary]` that are not zero."""
    (indices,) = np.nonzero(row)
    return SparseVector(indices.astype(np.int32), row[indices].astype(np.float32), len(row))

"""LlamaIndex: dense and sparse embeddings, and a node postprocessor that reranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.embeddings.base_sparse import BaseSparseEmbedding
from llama_index.core.bridge.pydantic import BaseModel, Field, PrivateAttr, SecretStr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from sie_sdk import sparse_embedding_dict
from sie_sdk.types import EncodeResult

from sie_integrations.calls import Calls

_BATCH = 256
"""Texts that go to the SDK at once, which makes of them four requests at a time."""


class _Server(BaseModel):
    """The server of a model; the fields are those of `sie_integrations.calls.Calls`. The key is never serialised."""

    base_url: str | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True)
    settings: dict[str, Any] = Field(default_factory=dict)
    _kept: Calls | None = PrivateAttr(None)

    def _of(self, model: str) -> Calls:
        if self._kept is None:
            key = None if self.api_key is None else self.api_key.get_secret_value()
            self._kept = Calls(model, self.base_url, key, self.settings)
        return self._kept


class SIEEmbedding(_Server, BaseEmbedding):
    """Dense vectors as lists of floats; `model_name` is the model's id.

    A query gets the model's query prompt, a text its document prompt.
    """

    model_name: str
    embed_batch_size: int = Field(default=_BATCH, gt=0, le=2048)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which it is serialised."""
        return "SIEEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return _lists(self._of(self.model_name).encode([query], "dense", "query"))[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return _lists(self._of(self.model_name).encode(texts, "dense", "document"))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return _lists(await self._of(self.model_name).aencode([query], "dense", "query"))[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._aget_text_embeddings([text]))[0]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return _lists(await self._of(self.model_name).aencode(texts, "dense", "document"))


class SIESparseEmbedding(_Server, BaseSparseEmbedding):
    """Sparse vectors as weights by index.

    For hybrid search of a `QdrantVectorStore`, hand over `documents` as `sparse_doc_fn` and `queries` as
    `sparse_query_fn`.
    """

    model_name: str
    embed_batch_size: int = Field(default=_BATCH, gt=0, le=2048)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which it is serialised."""
        return "SIESparseEmbedding"

    def documents(self, texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        """Return the indices and the values of documents."""
        return _apart(self._of(self.model_name).encode(texts, "sparse", "document"))

    def queries(self, texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        """Return the indices and the values of queries."""
        return _apart(self._of(self.model_name).encode(texts, "sparse", "query"))

    def _get_query_embedding(self, query: str) -> dict[int, float]:
        return sparse_embedding_dict(self._of(self.model_name).encode([query], "sparse", "query")[0])

    def _get_text_embedding(self, text: str) -> dict[int, float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[dict[int, float]]:
        return [sparse_embedding_dict(each) for each in self._of(self.model_name).encode(texts, "sparse", "document")]

    async def _aget_query_embedding(self, query: str) -> dict[int, float]:
        return sparse_embedding_dict((await self._of(self.model_name).aencode([query], "sparse", "query"))[0])

    async def _aget_text_embedding(self, text: str) -> dict[int, float]:
        return (await self._aget_text_embeddings([text]))[0]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[dict[int, float]]:
        results = await self._of(self.model_name).aencode(texts, "sparse", "document")
        return [sparse_embedding_dict(each) for each in results]


class SIERerank(_Server, BaseNodePostprocessor):
    """Keeps the `top_n` best nodes of a query, the best first, with their scores."""

    model: str
    top_n: int | None = None

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which it is serialised."""
        return "SIERerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return _scored(nodes, self._of(self.model).rank(_query(query_bundle), _texts(nodes), self.top_n))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return _scored(nodes, await self._of(self.model).arank(_query(query_bundle), _texts(nodes), self.top_n))


def _query(query_bundle: QueryBundle | None) -> str:
    if query_bundle is None:
        raise ValueError("SIERerank ranks by a query, and none was given: pass `query_str`")
    return str(query_bundle.query_str)


def _texts(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [node.node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]


def _scored(nodes: Sequence[NodeWithScore], ranked: Sequence[tuple[int, float]]) -> list[NodeWithScore]:
    return [NodeWithScore(node=nodes[place].node, score=score) for place, score in ranked]


def _lists(results: Sequence[EncodeResult]) -> list[list[float]]:
    return [result["dense"].tolist() for result in results]


def _apart(results: Sequence[EncodeResult]) -> tuple[list[list[int]], list[list[float]]]:
    sparse = [result["sparse"] for result in results]
    return [each["indices"].tolist() for each in sparse], [each["values"].tolist() for each in sparse]

"""LangChain: embeddings, a document compressor that reranks, and a runnable that extracts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel, Field, SecretStr
from sie_sdk.types import EncodeResult, ExtractResult

from sie_integrations.calls import Calls

SCORE: Final = "relevance_score"
"""The key of a document's metadata that holds its score."""


class _Model(BaseModel):
    """One model of one server; the fields are those of `sie_integrations.calls.Calls`."""

    model: str
    base_url: str | None = None
    api_key: SecretStr | None = None
    settings: dict[str, Any] = Field(default_factory=dict)

    @cached_property
    def _calls(self) -> Calls:
        key = None if self.api_key is None else self.api_key.get_secret_value()
        return Calls(self.model, self.base_url, key, self.settings)


class SIEEmbeddings(_Model, Embeddings):
    """Dense vectors as lists of floats; a query gets the model's query prompt, documents its document prompt."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents."""
        return _lists(self._calls.encode(texts, "dense", "document"))

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        return _lists(self._calls.encode([text], "dense", "query"))[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents."""
        return _lists(await self._calls.aencode(texts, "dense", "document"))

    async def aembed_query(self, text: str) -> list[float]:
        """Embed a query."""
        return _lists(await self._calls.aencode([text], "dense", "query"))[0]


class SIEReranker(_Model, BaseDocumentCompressor):
    """Keeps the `top_n` best documents, the best first, each with its score in its metadata under `relevance_score`."""

    top_n: int | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Rank documents by a query."""
        return _scored(documents, self._calls.rank(query, _texts(documents), self.top_n))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Rank documents by a query."""
        return _scored(documents, await self._calls.arank(query, _texts(documents), self.top_n))


class SIEExtractor(RunnableLambda[str, ExtractResult]):
    """Extracts from a text: `entities`, `relations`, `classifications`.

    `settings={"labels": […]}` says what to look for. `batch` runs texts on threads, and the server batches them.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str | None = None,
        api_key: SecretStr | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        calls = _Model(model=model, base_url=base_url, api_key=api_key, settings=settings or {})._calls

        def extract(text: str) -> ExtractResult:
            return calls.extract([text])[0]

        async def aextract(text: str) -> ExtractResult:
            return (await calls.aextract([text]))[0]

        super().__init__(extract, aextract, name="SIEExtractor")


def _texts(documents: Sequence[Document]) -> list[str]:
    return [document.page_content for document in documents]


def _scored(documents: Sequence[Document], ranked: Sequence[tuple[int, float]]) -> list[Document]:
    """Copy the documents of a ranking; those given stay as they are."""
    return [
        documents[place].model_copy(update={"metadata": {**documents[place].metadata, SCORE: score}})
        for place, score in ranked
    ]


def _lists(results: Sequence[EncodeResult]) -> list[list[float]]:
    return [result["dense"].tolist() for result in results]

"""LangChain's Qdrant store: sparse vectors beside the dense ones of `sie_integrations.langchain`, for hybrid search."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_qdrant import SparseEmbeddings, SparseVector
from sie_sdk.types import EncodeResult

from sie_integrations.calls import Calls


class SIESparseEmbeddings(SparseEmbeddings):
    """Sparse vectors; `calls` says of which model and server."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def embed_documents(self, texts: list[str]) -> list[SparseVector]:
        """Embed documents."""
        return _vectors(self.calls.encode(texts, "sparse", "document"))

    def embed_query(self, text: str) -> SparseVector:
        """Embed a query."""
        return _vectors(self.calls.encode([text], "sparse", "query"))[0]

    async def aembed_documents(self, texts: list[str]) -> list[SparseVector]:
        """Embed documents."""
        return _vectors(await self.calls.aencode(texts, "sparse", "document"))

    async def aembed_query(self, text: str) -> SparseVector:
        """Embed a query."""
        return _vectors(await self.calls.aencode([text], "sparse", "query"))[0]


def _vectors(results: Sequence[EncodeResult]) -> list[SparseVector]:
    sparse = [result["sparse"] for result in results]
    return [SparseVector(indices=each["indices"].tolist(), values=each["values"].tolist()) for each in sparse]

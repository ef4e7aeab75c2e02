"""Haystack: components that embed texts and documents, dense or sparse, rank documents and extract from them.

A pipeline with them is read by `Pipeline.loads(text, allowed_modules=["sie_integrations.haystack"])`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.dataclasses import SparseEmbedding
from haystack.utils import Secret, deserialize_secrets_inplace
from sie_sdk.types import EncodeResult, ExtractResult

from sie_integrations.calls import Calls

_EXTRACTED = ("entities", "relations", "classifications")


class _Model:
    """One model of one server, serialised without the key itself.

    Args:
        model: The model's id.
        base_url: The server; `SIE_BASE_URL` by default.
        api_key: The bearer key; `SIE_API_KEY` by default, where the server is that of `SIE_BASE_URL`.
        settings: Further keyword arguments of the SDK's call, e.g. `dimensions`, `instruction`, `options`, `gpu`.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: Secret | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.base_url = base_url
        self.api_key = api_key
        self.settings = settings or {}

    def to_dict(self) -> dict[str, Any]:
        """Serialise the component."""
        return default_to_dict(self, **self._parameters())  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Make the component of what `to_dict` returned."""
        deserialize_secrets_inplace(data["init_parameters"], keys=["api_key"])
        return default_from_dict(cls, data)  # type: ignore[no-any-return]

    def _parameters(self) -> dict[str, Any]:
        key = None if self.api_key is None else self.api_key.to_dict()
        return {"model": self.model, "base_url": self.base_url, "api_key": key, "settings": self.settings}

    @cached_property
    def _calls(self) -> Calls:
        key = None if self.api_key is None else self.api_key.resolve_value()
        return Calls(self.model, self.base_url, key, self.settings)


@component
class SIETextEmbedder(_Model):
    """Embeds a query, with the model's query prompt."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        """Embed a query."""
        return {"embedding": _dense(self._calls.encode([text], "dense", "query")[0])}

    @component.output_types(embedding=list[float])
    async def run_async(self, text: str) -> dict[str, Any]:
        """Embed a query."""
        return {"embedding": _dense((await self._calls.aencode([text], "dense", "query"))[0])}


@component
class SIEDocumentEmbedder(_Model):
    """Embeds documents, with the model's document prompt, into copies that have their `embedding`."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Embed documents."""
        return _embedded(documents, self._calls.encode(_texts(documents), "dense", "document"))

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        """Embed documents."""
        return _embedded(documents, await self._calls.aencode(_texts(documents), "dense", "document"))


@component
class SIESparseTextEmbedder(_Model):
    """Embeds a query into a sparse vector, with the model's query prompt."""

    @component.output_types(sparse_embedding=SparseEmbedding)
    def run(self, text: str) -> dict[str, Any]:
        """Embed a query."""
        return {"sparse_embedding": _sparse(self._calls.encode([text], "sparse", "query")[0])}

    @component.output_types(sparse_embedding=SparseEmbedding)
    async def run_async(self, text: str) -> dict[str, Any]:
        """Embed a query."""
        return {"sparse_embedding": _sparse((await self._calls.aencode([text], "sparse", "query"))[0])}


@component
class SIESparseDocumentEmbedder(_Model):
    """Embeds documents into sparse vectors: copies that have their `sparse_embedding`."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Embed documents."""
        return _sparsely(documents, self._calls.encode(_texts(documents), "sparse", "document"))

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        """Embed documents."""
        return _sparsely(documents, await self._calls.aencode(_texts(documents), "sparse", "document"))


@component
class SIERanker(_Model):
    """Ranks documents by a query: copies of the `top_k` best with their `score`, the best first."""

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: Secret | None = None,
        settings: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> None:
        _Model.__init__(self, model, base_url, api_key, settings)  # `component` makes another class: no `super()`
        self.top_k = top_k

    def _parameters(self) -> dict[str, Any]:
        return {**_Model._parameters(self), "top_k": self.top_k}

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, Any]:
        """Rank documents."""
        ranked = self._calls.rank(query, _texts(documents), top_k or self.top_k)
        return {"documents": [replace(documents[place], score=score) for place, score in ranked]}

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, Any]:
        """Rank documents."""
        ranked = await self._calls.arank(query, _texts(documents), top_k or self.top_k)
        return {"documents": [replace(documents[place], score=score) for place, score in ranked]}


@component
class SIEExtractor(_Model):
    """Extracts from documents into their metadata: `entities`, `relations`, `classifications`.

    `settings={"labels": […]}` says what to look for.
    """

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Extract from documents."""
        return _extracted(documents, self._calls.extract(_texts(documents)))

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        """Extract from documents."""
        return _extracted(documents, await self._calls.aextract(_texts(documents)))


def _texts(documents: Sequence[Document]) -> list[str]:
    for document in documents:
        if document.content is None:
            raise ValueError(f"document {document.id} has no content to send")
    return [document.content for document in documents]


def _dense(result: EncodeResult) -> list[float]:
    return list(result["dense"].tolist())


def _sparse(result: EncodeResult) -> SparseEmbedding:
    return SparseEmbedding(result["sparse"]["indices"].tolist(), result["sparse"]["values"].tolist())


def _embedded(documents: Sequence[Document], results: Sequence[EncodeResult]) -> dict[str, Any]:
    pairs = zip(documents, results, strict=True)
    return {"documents": [replace(document, embedding=_dense(result)) for document, result in pairs]}


def _sparsely(documents: Sequence[Document], results: Sequence[EncodeResult]) -> dict[str, Any]:
    pairs = zip(documents, results, strict=True)
    return {"documents": [replace(document, sparse_embedding=_sparse(result)) for document, result in pairs]}


def _extracted(documents: Sequence[Document], results: Sequence[ExtractResult]) -> dict[str, Any]:
    found = [{name: result[name] for name in _EXTRACTED if name in result} for result in results]  # type: ignore[literal-required]
    pairs = zip(documents, found, strict=True)
    return {"documents": [replace(document, meta={**document.meta, **each}) for document, each in pairs]}

"""Haystack: components that embed texts and documents, dense or sparse, rank documents and extract from them.

A pipeline with them is read by `Pipeline.loads(text, allowed_modules=["sie_integrations.haystack"])`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.dataclasses import SparseEmbedding
from haystack.utils import Secret, deserialize_secrets_inplace
from sie_sdk.types import EncodeResult, ExtractResult, OutputType

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

    _outputs: ClassVar[dict[str, Any]] = {"documents": list[Document]}
    """What `run` returns, by name."""

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
        component.set_output_types(self, **self._outputs)

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


class _TextEmbedder(_Model):
    """Embeds a query into vectors of one type, with the model's query prompt."""

    _type: ClassVar[OutputType] = "dense"
    _outputs: ClassVar[dict[str, Any]] = {"embedding": list[float]}

    def run(self, text: str) -> dict[str, Any]:
        """Embed a query."""
        return _vector(self._calls.encode([text], self._type, "query")[0])

    async def run_async(self, text: str) -> dict[str, Any]:
        """Embed a query."""
        return _vector((await self._calls.aencode([text], self._type, "query"))[0])


class _DocumentEmbedder(_Model):
    """Embeds documents into vectors of one type, with the model's document prompt: copies that have them."""

    _type: ClassVar[OutputType] = "dense"

    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Embed documents."""
        return _embedded(documents, self._calls.encode(_texts(documents), self._type, "document"))

    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        """Embed documents."""
        return _embedded(documents, await self._calls.aencode(_texts(documents), self._type, "document"))


@component
class SIETextEmbedder(_TextEmbedder):
    """Embeds a query into `embedding`, with the model's query prompt."""


@component
class SIEDocumentEmbedder(_DocumentEmbedder):
    """Embeds documents, with the model's document prompt, into copies that have their `embedding`."""


@component
class SIESparseTextEmbedder(_TextEmbedder):
    """Embeds a query into `sparse_embedding`, with the model's query prompt."""

    _type = "sparse"
    _outputs: ClassVar[dict[str, Any]] = {"sparse_embedding": SparseEmbedding}


@component
class SIESparseDocumentEmbedder(_DocumentEmbedder):
    """Embeds documents, with the model's document prompt, into copies that have their `sparse_embedding`."""

    _type = "sparse"


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

    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, Any]:
        """Rank documents."""
        ranked = self._calls.rank(query, _texts(documents), top_k or self.top_k)
        return {"documents": [replace(documents[place], score=score) for place, score in ranked]}

    async def run_async(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, Any]:
        """Rank documents."""
        ranked = await self._calls.arank(query, _texts(documents), top_k or self.top_k)
        return {"documents": [replace(documents[place], score=score) for place, score in ranked]}


@component
class SIEExtractor(_Model):
    """Extracts from documents into their metadata: `entities`, `relations`, `classifications`.

    `settings={"labels": […]}` says what to look for.
    """

    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Extract from documents."""
        return _extracted(documents, self._calls.extract(_texts(documents)))

    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        """Extract from documents."""
        return _extracted(documents, await self._calls.aextract(_texts(documents)))


def _texts(documents: Sequence[Document]) -> list[str]:
    for document in documents:
        if document.content is None:
            raise ValueError(f"document {document.id} has no content to send")
    return [document.content for document in documents]


def _vector(result: EncodeResult) -> dict[str, Any]:
    """Return a result's vector by the name of a document's field."""
    if "sparse" in result:
        sparse = result["sparse"]
        return {"sparse_embedding": SparseEmbedding(sparse["indices"].tolist(), sparse["values"].tolist())}
    return {"embedding": result["dense"].tolist()}


def _embedded(documents: Sequence[Document], results: Sequence[EncodeResult]) -> dict[str, Any]:
    pairs = zip(documents, results, strict=True)
    return {"documents": [replace(document, **_vector(result)) for document, result in pairs]}


def _extracted(documents: Sequence[Document], results: Sequence[ExtractResult]) -> dict[str, Any]:
    found = [{name: result[name] for name in _EXTRACTED if name in result} for result in results]  # type: ignore[literal-required]
    pairs = zip(documents, found, strict=True)
    return {"documents": [replace(document, meta={**document.meta, **each}) for document, each in pairs]}

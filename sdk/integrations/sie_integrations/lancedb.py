"""LanceDB: an entry of the embedding registry, `get_registry().get("sie")`, once this module is imported."""

from __future__ import annotations

from typing import Any

from lancedb.embeddings import EmbeddingFunction, register
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr
from sie_sdk.types import InputType

from sie_integrations.calls import Calls


@register("sie")
class SIEEmbeddingFunction(EmbeddingFunction):
    """Dense vectors as NumPy arrays; a query gets the model's query prompt, a source column its document prompt.

    The fields are those of `sie_integrations.calls.Calls`; `name` is the model's id, and `api_key` a variable of the
    registry, as `$var:key`. The SDK retries, so LanceDB does not.
    """

    name: str
    base_url: str | None = None
    api_key: str | None = Field(default=None, repr=False)
    settings: dict[str, Any] = Field(default_factory=dict)
    max_retries: int = 0
    _kept: Calls | None = PrivateAttr(None)

    @staticmethod
    def sensitive_keys() -> list[str]:
        """Return the names of the fields that no table may keep."""
        return ["api_key"]

    def compute_query_embeddings(self, query: str, *args: Any, **kwargs: Any) -> list[NDArray[Any]]:
        """Embed a query."""
        return self._embed(query, "query")

    def compute_source_embeddings(self, texts: Any, *args: Any, **kwargs: Any) -> list[NDArray[Any]]:
        """Embed a column of texts."""
        return self._embed(texts, "document")

    def ndims(self) -> int:
        """Return how many dimensions the vectors have, as the server tells."""
        return self._calls().dims()

    def _calls(self) -> Calls:
        if self._kept is None:
            self._kept = Calls(self.name, self.base_url, self.api_key, self.settings)
        return self._kept

    def _embed(self, texts: Any, input_type: InputType) -> list[NDArray[Any]]:
        listed = list(self.sanitize_input(texts))
        return [result["dense"] for result in self._calls().encode(listed, "dense", input_type)]

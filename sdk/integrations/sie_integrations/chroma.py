"""Chroma: an embedding function, which a collection keeps by its config."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space
from chromadb.utils.embedding_functions import register_embedding_function
from sie_sdk.types import InputType

from sie_integrations.calls import Calls


@register_embedding_function
class SIEEmbeddingFunction(EmbeddingFunction[Documents]):
    """Dense vectors as NumPy arrays; a query gets the model's query prompt, documents its document prompt.

    Args:
        model: The model's id.
        base_url: The server; `SIE_BASE_URL` by default.
        api_key_env_var: The variable that holds the bearer key. A collection keeps its name and never the key.
        settings: Further keyword arguments of the SDK's call, e.g. `dimensions`, `instruction`, `options`, `gpu`.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key_env_var: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._config: dict[str, Any] = {
            "model": model,
            "base_url": base_url,
            "api_key_env_var": api_key_env_var,
            "settings": settings or {},
        }

    def __call__(self, input: Documents) -> Embeddings:  # noqa: A002 - Chroma's name
        """Embed documents."""
        return self._embed(input, "document")

    def embed_query(self, input: Documents) -> Embeddings:  # noqa: A002 - Chroma's name
        """Embed queries."""
        return self._embed(input, "query")

    @staticmethod
    def name() -> str:
        """Return the name under which a collection keeps it."""
        return "sie"

    def default_space(self) -> Space:
        """Return the distance of collections that name none."""
        return "cosine"

    def get_config(self) -> dict[str, Any]:
        """Return what a collection keeps."""
        return dict(self._config)

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> SIEEmbeddingFunction:
        """Make the function of what a collection kept."""
        return SIEEmbeddingFunction(**config)

    @cached_property
    def _calls(self) -> Calls:
        config = self._config
        variable = config["api_key_env_var"]
        key = None if variable is None else os.environ[variable]
        return Calls(config["model"], config["base_url"], key, config["settings"])

    def _embed(self, texts: Documents, input_type: InputType) -> Embeddings:
        return [result["dense"] for result in self._calls.encode(texts, "dense", input_type)]

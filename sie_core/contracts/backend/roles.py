"""Names of query and document prompts, as used by clients and weights: one table for both."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sie_core.contracts.backend.requests import InputType

ROLES: Final[Mapping[str, InputType]] = MappingProxyType(
    {
        "query": "query",
        "search_query": "query",
        "retrieval.query": "query",
        "Retrieval-query": "query",
        "document": "document",
        "passage": "document",
        "corpus": "document",
        "search_document": "document",
        "retrieval.passage": "document",
        "Retrieval-document": "document",
    }
)
"""Meaning of each name. The names of one role are looked up in this order."""

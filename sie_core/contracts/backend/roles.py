"""The names by which clients and weights call the prompts of queries and documents: one table for all of them."""

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
"""What each name means. Names of one role are looked for in this order."""

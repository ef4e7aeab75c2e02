"""Example bodies of a route: they stand in the OpenAPI document, and `/docs` sends them to a model that is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

MODEL: Final = "sentence-transformers/all-MiniLM-L6-v2"
"""The model that examples name in their body, as the document has them; `/docs` puts one that is here in its place."""
NEEDS: Final = "x-sie-needs"
"""The key of an OpenAPI example with what its model must do."""

Needs = Literal["dense", "sparse", "multivector", "score", "extract", "classes"]
"""An output or an operation of a model, or classes of its own."""


@dataclass(frozen=True, slots=True)
class Example:
    """A body that a model answers with a 200."""

    summary: str
    body: Mapping[str, Any]
    needs: Needs = "dense"


def described(examples: Sequence[Example]) -> dict[str, Any]:
    """Describe examples as OpenAPI has them in a media type, by a number."""
    return {
        str(number): {"summary": each.summary, "value": each.body, NEEDS: each.needs}
        for number, each in enumerate(examples, 1)
    }

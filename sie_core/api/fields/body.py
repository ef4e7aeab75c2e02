"""The body of a request in another API's shape: it refuses fields that change an answer and are not served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, model_validator

from sie_core.api.fields.table import UNSERVED
from sie_core.api.schema import Schema
from sie_core.contracts import InvalidInput

LIKE: Final = 0.85
"""From this likeness on, of `difflib`, a name that nobody knows counts as a misspelt field."""


class DialectBody(Schema):
    """A body, or a map in it. A field that nobody knows is ignored and told, as the services it comes from do."""

    model_config = ConfigDict(strict=True, extra="allow")

    @model_validator(mode="after")
    def _refuse_unserved(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if value is not None and (why := _refusal(name, value, type(self).model_fields)) is not None:
                raise InvalidInput(why, param=name)
        return self


def ignored_fields(body: BaseModel, prefix: str = "") -> Iterator[str]:
    """Name the fields of a body that nobody knows, those of the maps in it by their path."""
    for name, value in (body.model_extra or {}).items():
        if value is not None and name not in UNSERVED:
            yield prefix + name
    for name in body.model_fields_set:
        value = getattr(body, name)
        if isinstance(value, DialectBody):
            yield from ignored_fields(value, f"{prefix}{name}.")


def _refusal(name: str, value: Any, known: Iterable[str]) -> str | None:
    row = UNSERVED.get(name)
    if row is None:
        near = get_close_matches(name, known, 1, LIKE)
        return f"`{name}` is no field of this route; did you mean `{near[0]}`?" if near else None
    if not row.refused or value in row.harmless:
        return None
    return f"`{name}` is not served here: {row.why}."

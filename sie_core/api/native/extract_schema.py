"""The bodies of `POST /v1/extract/{model}`: the request and the reply.

Unknown keys are ignored, as the wire contract demands.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, FailFast, Field

from sie_core.api.body.reply_body import TimingOutput, TruncationOutput, UsageOutput
from sie_core.api.http.limits import MAX_ITEMS, MAX_LABEL_CHARS, MAX_LABELS, MAX_SCHEMA_DEPTH, MAX_SCHEMA_VALUES
from sie_core.api.native.item_schema import STRICT, ItemBody, NativeBody, Options, no_bare_string
from sie_core.api.schema import Schema
from sie_core.contracts import Truncate


def _bounded(schema: dict[str, Any]) -> dict[str, Any]:
    """Refuse a schema that nests too deep or holds too much, level by level."""
    level: list[Any] = [schema]
    depth = values = 0
    while level:
        depth, values = depth + 1, values + len(level)
        if depth > MAX_SCHEMA_DEPTH:
            raise ValueError(f"nests deeper than {MAX_SCHEMA_DEPTH} levels")
        if values > MAX_SCHEMA_VALUES:
            raise ValueError(f"holds more than {MAX_SCHEMA_VALUES} values")
        level = [child for parent in level for child in _children(parent)]
    return schema


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


class ExtractParamsBody(Schema):
    """What to extract."""

    model_config = STRICT

    labels: list[Annotated[str, Field(max_length=MAX_LABEL_CHARS)]] | None = Field(
        default=None, max_length=MAX_LABELS, description="What to look for.", examples=[["person", "place"]]
    )
    output_schema: Annotated[dict[str, Any], AfterValidator(_bounded)] | None = Field(
        default=None, description="A JSON Schema of `data`, for models that take one."
    )
    instruction: str | None = None
    truncate: Truncate | None = Field(
        default=None,
        description="Where a text beyond the model's length is cut (`end` by default), or `error` to refuse it.",
    )
    options: Options | None = None


class ExtractBody(NativeBody):
    """A request to extract."""

    model_config = STRICT

    items: Annotated[list[ItemBody], FailFast(), BeforeValidator(no_bare_string)] = Field(
        min_length=1, max_length=MAX_ITEMS
    )
    params: ExtractParamsBody | None = None


Box = Annotated[list[float], Field(min_length=4, max_length=4, description="x, y, width, height, in pixels.")]
Span = Annotated[list[int], Field(min_length=2, max_length=2, description="Characters, the end exclusive.")]


class EntityOutput(Schema):
    """Something named in the text; `start` and `end` are characters, the end exclusive."""

    text: str
    label: str
    score: float
    start: int | None
    end: int | None
    bbox: Box | None


class RelationOutput(Schema):
    """A relation between two texts that stand in the item; the spans say where, if the model does."""

    head: str
    tail: str
    relation: str
    score: float
    head_span: Span | None = None
    tail_span: Span | None = None


class ClassificationOutput(Schema):
    """A label of the whole item."""

    label: str
    score: float


class ObjectOutput(Schema):
    """Something seen in the image."""

    label: str
    score: float
    bbox: Box


class ExtractedItem(Schema):
    """What was extracted from one item; kinds the model does not extract are empty."""

    id: str = Field(description="The item's id, or `item-<place in the request>`.")
    entities: list[EntityOutput]
    relations: list[RelationOutput]
    classifications: list[ClassificationOutput]
    objects: list[ObjectOutput]
    data: dict[str, Any]
    truncated: TruncationOutput | None = None


class ExtractReply(Schema):
    """The items in the order they were sent."""

    model: str
    items: list[ExtractedItem]
    timing: TimingOutput
    usage: UsageOutput

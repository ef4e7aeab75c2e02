"""The schema of an item as clients send it, and its conversion to the contracts' `Item`.

Unknown keys are ignored, as the wire contract demands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, model_validator
from sie_sdk import wire

from sie_core.api.body.base64_text import decode_base64
from sie_core.api.schema import Schema
from sie_core.contracts import InvalidInput, Item, Media

STRICT = ConfigDict(strict=True, extra="ignore")
PARAMS = frozenset({
    "dimensions", "input_type", "instruction", "is_query", "labels", "options", "output_dtype", "output_schema",
    "output_types", "truncate",
})  # fmt: skip
"""Fields that are in `params` for `encode` and `extract`, and beside `items` for `score`."""
_TEXT_ALONE = frozenset({"id", "text"})
"""What most items have at most."""


def _from_base64(value: Any, info: ValidationInfo) -> Any:
    """Decode the base64 text that stands for bytes in JSON; msgpack has a type for bytes."""
    if not (isinstance(value, str) and info.context and info.context["format"] == "json"):
        return value
    return decode_base64(value)


Binary = Annotated[
    bytes,
    BeforeValidator(_from_base64),
    WithJsonSchema(
        {
            "type": "string",
            "contentEncoding": "base64",
            "description": "Base64 text in JSON, binary in msgpack.",
        }
    ),
]


Options = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "description": "Options of the family, which refuses unknown ones, and some that every model has.",
            "properties": {
                "is_query": {"type": "boolean", "description": "Another spelling of `input_type`, for `encode`."},
                "overflow_policy": {"enum": ["default", "truncate_text", "error"], "description": "Of `truncate`."},
                "profile": {"type": "string", "description": "Another profile of the same loaded model."},
            },
            "additionalProperties": True,
        }
    ),
]


class MediaBody(Schema):
    """An image, video or document."""

    model_config = STRICT

    data: Binary
    format: str | None = Field(default=None, description="`jpeg`, `png`, `pdf`, …; absent: found out from the bytes.")

    def media(self) -> Media:
        """Convert it to the contracts' `Media`."""
        return Media(self.data, self.format)


class AudioBody(MediaBody):
    """An audio clip."""

    model_config = ConfigDict(strict=True, extra="forbid")

    sample_rate: int | None = Field(default=None, ge=1, description="Samples a second.")

    def media(self) -> Media:
        """Convert it to the contracts' `Media`."""
        return Media(self.data, self.format, self.sample_rate)


class ItemBody(Schema):
    """One thing to encode, to score or to extract from."""

    model_config = STRICT

    id: str | None = Field(default=None, description="Echoed beside the item's outputs.")
    text: str | None = None
    token_ids: list[int] | None = Field(
        default=None, min_length=1, description="In place of `text`, where the model's config accepts them."
    )
    images: list[MediaBody] | None = None
    audio: AudioBody | None = None
    video: MediaBody | None = None
    document: MediaBody | None = None
    metadata: dict[str, Any] | None = Field(default=None, description="Counts towards the item's size; not echoed.")

    def item(self, default_id: str | None = None) -> Item:
        """Convert it to the contracts' `Item`; `default_id` is for an item without an id."""
        own_id = default_id if self.id is None else self.id
        if self.model_fields_set <= _TEXT_ALONE:
            return Item(own_id, self.text)
        return Item(
            id=own_id,
            text=self.text,
            token_ids=None if self.token_ids is None else tuple(self.token_ids),
            images=tuple(image.media() for image in self.images or ()),
            audio=self.audio.media() if self.audio else None,
            video=self.video.media() if self.video else None,
            document=self.document.media() if self.document else None,
            metadata=self.metadata,
        )


class NativeBody(Schema):
    """A body with items."""

    model_config = STRICT

    items: list[ItemBody]

    @model_validator(mode="before")
    @classmethod
    def _nothing_misplaced(cls, data: Any) -> Any:
        """Refuse a field that belongs to another level; as an unknown key it would be ignored silently."""
        fields = cls.model_fields
        if isinstance(data, dict) and "params" in fields:
            if wrong := sorted(data.keys() & PARAMS - fields.keys()):
                raise ValueError(f"holds `{wrong[0]}`, which belongs into `params`")
        elif isinstance(data, dict) and data.get("params") is not None:
            raise ValueError("holds `params`; the fields of this operation stand beside `items`")
        return data

    def places(self) -> Iterator[tuple[int | None, ItemBody]]:
        """List the items, each with its place; the query of a body that has one is at None."""
        yield from enumerate(self.items)

    def check_sizes(self, limit: int) -> None:
        """Refuse items whose text and metadata are larger than `limit` bytes.

        Raises:
            InvalidInput: Names the first.
        """
        for place, item in self.places():
            if item_size(item.text, item.metadata) > limit:
                check_item_size(item.text, item.metadata, limit, "query" if place is None else f"items[{place}]")

    def named_items(self) -> list[Item]:
        """Convert the items to the contracts' `Item`; an item without an id is named by its place."""
        return [item.item(f"item-{place}") for place, item in enumerate(self.items)]


def no_bare_string(value: Any) -> Any:
    """Refuse a string in place of an item, with an example of an item."""
    if isinstance(value, str) or (isinstance(value, list) and any(isinstance(item, str) for item in value)):
        raise ValueError('holds a bare string; an item is a map such as {"text": "…"}')
    return value


def params_field_name(param: str, body: NativeBody) -> str:
    """Name the body's field for a field of the request to the backend, e.g. `params.options.x` for `options.x`."""
    field = re.match(r"\w+", param)
    return param if field is None or field[0] == "model" or field[0] in type(body).model_fields else f"params.{param}"


def check_item_size(text: str | None, metadata: dict[str, Any] | None, limit: int, param: str) -> None:
    """Refuse an item whose text (in UTF-8) and metadata (in msgpack) are larger than `limit` bytes.

    Raises:
        InvalidInput: Names `param`.
    """
    size = item_size(text, metadata)
    if size > limit:
        message = f"`{param}` has {size} bytes of text and metadata; {limit} are allowed (SIE_MAX_ITEM_TEXT_BYTES)."
        raise InvalidInput(message, param=param)


def item_size(text: str | None, metadata: dict[str, Any] | None) -> int:
    """Count the bytes of an item's text (in UTF-8) and metadata (in msgpack)."""
    size = 0
    if text is not None:
        size = len(text) if text.isascii() else len(text.encode())
    return size + len(wire.pack(metadata)) if metadata else size

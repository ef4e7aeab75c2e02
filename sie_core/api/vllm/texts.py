"""What the bodies and replies of vLLM's routes have in common."""

from __future__ import annotations

import time
from typing import Any

from sie_core.api.body.body import kind_of
from sie_core.api.inference.call import Call
from sie_core.api.native.item_schema import check_item_size
from sie_core.contracts import InferenceReply, InvalidInput
from sie_core.logs import request_fields


def read_texts(given: Any, name: str, most: int, most_bytes: int) -> list[str]:
    """Read a text or a list of texts.

    Args:
        given: The value of the field.
        name: The field.
        most: How many there may be.
        most_bytes: Of each.

    Raises:
        InvalidInput: `param` names the text at fault, e.g. `text_2[3]`.
    """
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise InvalidInput(f"`{name}` must be a text or a list of texts, not {kind_of(given)}.", param=name)
    if len(texts) > most:
        message = f"`{name}` has {len(texts)} entries; {most} are allowed: send several requests."
        raise InvalidInput(message, param=name)
    for place, text in enumerate(texts):
        param = place_of(name, given, place)
        if not isinstance(text, str):
            raise InvalidInput(f"`{param}` must be a text, not {kind_of(text)}.", param=param)
        check_item_size(text, None, most_bytes, param)
    return texts


def place_of(name: str, given: Any, place: int | str) -> str:
    """Name a text of a field: `input` where it is one text, `input[3]` where it is a list."""
    return name if isinstance(given, str) else f"{name}[{place}]"


def listing(call: Call, model: str | None, data: object, reply: InferenceReply) -> dict[str, Any]:
    """Make a reply with `data`."""
    tokens = reply.usage.input_tokens
    return {
        "id": request_fields().request_id,
        "object": "list",
        "created": int(time.time()),
        "model": call.model(model),
        "data": data,
        "usage": {
            "prompt_tokens": tokens,
            "total_tokens": tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
        },
    }

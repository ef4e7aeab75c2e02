"""Makes items of the texts, pictures and inputs that Cohere's clients send."""

from __future__ import annotations

import re
from typing import Final

from sie_core.api.body.pictures import read_picture
from sie_core.api.cohere.schema import CohereEmbedBody, CohereInput
from sie_core.api.native.item_schema import check_item_size
from sie_core.contracts import InvalidInput, Item

_ITEM: Final = re.compile(r"items(\[\d+\]).*")
_FIELDS: Final = {
    "output_types": "model",  # the body has none: the model is the wrong one
    "dimensions": "output_dimension",
    "options.prompt_name": "input_type",
}


def read_inputs(body: CohereEmbedBody, max_text_bytes: int) -> list[Item]:
    """Make an item of every text, picture or input.

    Raises:
        InvalidInput: `param` names the input at fault, e.g. `inputs[3].content[0]`.
    """
    if body.texts is not None:
        for place, text in enumerate(body.texts):
            check_item_size(text, None, max_text_bytes, f"texts[{place}]")
        return [Item(text=text) for text in body.texts]
    if body.images is not None:
        return [Item(images=(read_picture(image, f"images[{place}]"),)) for place, image in enumerate(body.images)]
    return [_item(each, max_text_bytes, f"inputs[{place}]") for place, each in enumerate(body.inputs or ())]


def field_name(param: str, body: CohereEmbedBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    return _FIELDS.get(param, _ITEM.sub(rf"{body.source}\1", param))


def _item(given: CohereInput, max_text_bytes: int, param: str) -> Item:
    texts, images = [], []
    for place, part in enumerate(given.content):
        where = f"{param}.content[{place}]"
        if part.type == "image_url" and part.image_url is not None:
            images.append(read_picture(part.image_url.url, f"{where}.image_url.url"))
        elif part.type == "text" and part.text is not None:
            check_item_size(part.text, None, max_text_bytes, f"{where}.text")
            texts.append(part.text)
        else:
            raise InvalidInput(f"`{where}.{part.type}` is missing.", param=f"{where}.{part.type}")
    if len(texts) > 1:
        message = f"`{param}.content` holds {len(texts)} texts, and an input takes one: join them."
        raise InvalidInput(message, param=f"{param}.content")
    return Item(text=texts[0] if texts else None, images=tuple(images))

"""Makes items of the inputs to embed: one text, a list of texts and pictures, or token ids where a model takes them."""

from __future__ import annotations

from typing import Any

from sie_core.api.body.body import kind_of
from sie_core.api.body.pictures import read_picture
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS
from sie_core.api.native.item_schema import check_item_size
from sie_core.contracts import InvalidInput, Item

FOREIGN_TOKEN_IDS = (
    "`input` holds token ids, and the client made them with the tokenizer of another model: this model would read them "
    "as other words. Send the text itself. LangChain's OpenAIEmbeddings does with check_embedding_ctx_length=False."
)


def read_input(given: Any, max_text_bytes: int, name: str = "input") -> list[Item]:
    """Make an item of every input; `name` is the field that holds them.

    Raises:
        InvalidInput: `param` names the input at fault, e.g. `input[3]`.
    """
    if isinstance(given, str):
        return [_text(given, max_text_bytes, name)]
    if not isinstance(given, list):
        raise InvalidInput(f"`{name}` must be a text or a list of texts, not {kind_of(given)}.", param=name)
    if not given:
        raise InvalidInput(f"`{name}` is an empty list; give at least one text.", param=name)
    if _is_token_id(given[0]):
        return [_token_ids(given, name)]
    if len(given) > MAX_EMBEDDING_INPUTS:
        message = f"`{name}` has {len(given)} entries; {MAX_EMBEDDING_INPUTS} are allowed: send several requests."
        raise InvalidInput(message, param=name)
    if isinstance(given[0], list):
        return [_token_ids(ids, f"{name}[{place}]") for place, ids in enumerate(given)]
    return [_item(each, max_text_bytes, f"{name}[{place}]") for place, each in enumerate(given)]


def param_of(item: str, given: Any, name: str = "input") -> str:
    """Name the input of the item `items[3]…`: `input[3]`, or `input` where there is one."""
    single = isinstance(given, str) or _is_token_id(given[0])
    return name if single else name + item.removeprefix("items").partition(".")[0]


def _item(given: Any, max_bytes: int, param: str) -> Item:
    """Read an entry of a list; `{"text": …}` and `{"image": …}` are Jina's."""
    if not isinstance(given, dict):
        return _text(given, max_bytes, param)
    if given.keys() == {"text"}:
        return _text(given["text"], max_bytes, f"{param}.text")
    if given.keys() == {"image"}:
        return Item(images=(read_picture(given["image"], f"{param}.image"),))
    held = ", ".join(map(str, given))[:100] or "nothing"
    message = f'`{param}` must be a text, {{"text": …}} or {{"image": …}}; it is a map of {held}.'
    raise InvalidInput(message, param=param)


def _text(given: Any, max_bytes: int, param: str) -> Item:
    if not isinstance(given, str):
        raise InvalidInput(f"`{param}` must be a text like the other inputs, not {kind_of(given)}.", param=param)
    check_item_size(given, None, max_bytes, param)
    return Item(text=given)


def _token_ids(given: Any, param: str) -> Item:
    if not isinstance(given, list) or not given or not all(map(_is_token_id, given)):
        raise InvalidInput(
            f"`{param}` must be a list of token ids (integers from 0), like the other inputs.", param=param
        )
    return Item(token_ids=tuple(given))


def _is_token_id(value: Any) -> bool:
    return type(value) is int and value >= 0

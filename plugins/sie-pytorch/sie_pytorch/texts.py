"""The text of an item, checked. It knows no model."""

from __future__ import annotations

from sie_core.contracts import InvalidInput, Item


def item_text(item: Item, index: int, model: str) -> str:
    """Return the text of `items[index]`.

    Raises:
        InvalidInput: It has none, or one that is not Unicode.
    """
    where = f"items[{index}].text"
    if item.text is None:
        raise InvalidInput(f"{where} is missing: {model} encodes texts.", param=where)
    if not item.text.isascii():
        try:
            item.text.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                f"{where} holds a lone surrogate, which is no Unicode character; replace it.", param=where
            ) from None
    return item.text

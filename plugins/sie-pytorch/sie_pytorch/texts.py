"""The text of an item, checked."""

from __future__ import annotations

from sie_core.contracts import InvalidInput, Item


def item_text(item: Item, index: int, model: str) -> str:
    """Return the text of `items[index]`; see `text_at`."""
    return text_at(item, f"items[{index}]", model)


def text_at(item: Item, where: str, model: str) -> str:
    """Return the text of the item that stands at `where`, e.g. `query`.

    Raises:
        InvalidInput: It has none, or one that is not Unicode.
    """
    field = f"{where}.text"
    if item.text is None:
        raise InvalidInput(f"{field} is missing: {model} reads texts.", param=field)
    if not item.text.isascii():
        try:
            item.text.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                f"{field} holds a lone surrogate, which is no Unicode character; replace it.", param=field
            ) from None
    return item.text

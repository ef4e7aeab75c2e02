"""The text of an item, checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sie_core.contracts import InvalidInput, Item

PORTION_CHARACTERS = 2**16
PORTION_TEXTS = 256


def text_at(item: Item, where: str, model: str) -> str:
    """Return the text of the item at `where`, e.g. `items[3]` or `query`.

    Raises:
        InvalidInput: It has no text, or one that is not Unicode; `param` names the field.
    """
    field = f"{where}.text"
    if item.text is None:
        raise InvalidInput(f"{field} is missing: {model} reads texts.", param=field)
    return require_unicode(item.text, field)


def require_unicode(text: str, where: str) -> str:
    """Return a text that is Unicode: a lone surrogate, which JSON can spell, is no character and has no UTF-8.

    Raises:
        InvalidInput: The text holds one; `param` is `where`.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                f"{where} holds a lone surrogate, which is no Unicode character; replace it.", param=where
            ) from None
    return text


def portions(texts: Iterable[str]) -> Iterator[list[str]]:
    """Take texts a few at a time, by number and length."""
    portion: list[str] = []
    characters = 0
    for text in texts:
        if portion and (len(portion) == PORTION_TEXTS or characters + len(text) > PORTION_CHARACTERS):
            yield portion
            portion, characters = [], 0
        portion.append(text)
        characters += len(text)
    if portion:
        yield portion

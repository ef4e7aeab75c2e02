"""The tokens of texts, and the texts of tokens, as clients want to see them."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Encoding, Tokenizer

from sie_core.contracts import InvalidInput, Token


def show_tokens(core: Tokenizer, texts: Sequence[str], *, special: bool, most: int | None) -> list[list[Token]]:
    """List the tokens of each text, or its first `most` ones, with or without the special tokens around it.

    Raises:
        InvalidInput: A text is not Unicode.
    """
    for place, text in enumerate(texts):
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise InvalidInput(
                f"inputs[{place}] holds a lone surrogate, which is no Unicode character; replace it.",
                param=f"inputs[{place}]",
            )
    encodings = core.encode_batch(list(texts), add_special_tokens=special)
    return [_shown(text, encoding, most) for text, encoding in zip(texts, encodings, strict=True)]


def _shown(text: str, encoding: Encoding, most: int | None) -> list[Token]:
    if most is not None:
        encoding.truncate(most)
    columns = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.special_tokens_mask, strict=True)
    return [
        Token(number, name, special=True) if special else Token(number, text[start:stop], False, start, stop)
        for number, name, (start, stop), special in columns
    ]


def write_texts(core: Tokenizer, ids: Sequence[Sequence[int]], *, special: bool) -> list[str]:
    """Write the text of each list of ids, with or without the special tokens among them.

    Raises:
        InvalidInput: The tokenizer has no such token; it would pass it over.
    """
    for place, tokens in enumerate(ids):
        for number in tokens:
            if number >= 2**32 or core.id_to_token(number) is None:
                message = f"ids[{place}] holds {number}, and the tokenizer of this model has no such token."
                raise InvalidInput(message, param=f"ids[{place}]")
    return core.decode_batch([list(tokens) for tokens in ids], skip_special_tokens=not special)

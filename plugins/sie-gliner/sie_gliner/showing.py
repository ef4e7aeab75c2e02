"""The tokens of texts as clients want to see them: of the words that the checkpoint's own splitter finds.

It must not know windows, labels or the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from sie_core.contracts import InvalidInput, Token
from sie_gliner.tokens import Ids, Tokens
from sie_gliner.words import WordReader


def show_tokens(
    words: WordReader, tokens: Tokens, texts: Sequence[str], *, special: bool, most: int | None
) -> list[list[Token]]:
    """List the tokens of each text, or its first `most` ones, with or without the special tokens around a row.

    Raises:
        InvalidInput: A text is not Unicode.
    """
    head, tail = (_special(tokens, tokens.head), _special(tokens, tokens.tail)) if special else ([], [])
    return [[*islice((*head, *_shown(words, tokens, text, f"inputs[{place}]"), *tail), most)]
            for place, text in enumerate(texts)]  # fmt: skip


def _special(tokens: Tokens, ids: Ids) -> list[Token]:
    return [Token(int(number), tokens.core.id_to_token(int(number)) or "", special=True) for number in ids]


def _shown(words: WordReader, tokens: Tokens, text: str, where: str) -> Iterator[Token]:
    try:
        text.encode()
    except UnicodeEncodeError:
        message = f"{where} holds a lone surrogate, which is no Unicode character; replace it."
        raise InvalidInput(message, param=where) from None
    found = words.split(text)
    encoding = tokens.core.encode([word for word, _, _ in found], is_pretokenized=True, add_special_tokens=False)
    ids = tokens.plain(np.array(encoding.ids, dtype=np.int64))
    for number, word, (start, stop) in zip(ids, encoding.word_ids, encoding.offsets, strict=True):
        begin = found[word or 0][1]
        yield Token(int(number), text[begin + start : begin + stop], False, begin + start, begin + stop)

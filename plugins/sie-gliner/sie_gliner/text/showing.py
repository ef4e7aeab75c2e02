"""The tokens of texts as clients want to see them: of the words that the checkpoint's own splitter finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from sie_text.tokenizer import Ids, require_unicode

from sie_core.contracts import Token
from sie_gliner.text.tokens import Tokens
from sie_gliner.text.words import WordReader


def show_tokens(
    words: WordReader, tokens: Tokens, texts: Sequence[str], *, special: bool, most: int | None
) -> list[list[Token]]:
    """List the tokens of each text, or its first `most` ones, with or without the special tokens around a row.

    Raises:
        InvalidInput: A text is not Unicode.
    """
    tokenizer = tokens.tokenizer
    head, tail = (_special(tokens, ids) if special else [] for ids in (tokenizer.head, tokenizer.tail))
    return [[*islice((*head, *_shown(words, tokens, text, f"inputs[{place}]"), *tail), most)]
            for place, text in enumerate(texts)]  # fmt: skip


def _special(tokens: Tokens, ids: Ids) -> list[Token]:
    return [Token(int(number), tokens.tokenizer.core.id_to_token(int(number)) or "", special=True) for number in ids]


def _shown(words: WordReader, tokens: Tokens, text: str, where: str) -> Iterator[Token]:
    require_unicode(text, where)
    found, core = words.split(text), tokens.tokenizer.core
    encoding = core.encode([word for word, _, _ in found], is_pretokenized=True, add_special_tokens=False)
    ids = tokens.plain(np.array(encoding.ids, dtype=np.int64))
    for number, word, (start, stop) in zip(ids, encoding.word_ids, encoding.offsets, strict=True):
        begin = found[word or 0][1]
        yield Token(int(number), text[begin + start : begin + stop], False, start=begin + start, stop=begin + stop)

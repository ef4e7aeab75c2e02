"""A tokenizer whose tokens are the words of a text, so that what is expected of it can be written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sie_text.tokenizer import TextTokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ("[UNK]", "[CLS]", "[SEP]", *"abcdefghij", "find", "this", ":", "thanks", "!")
NUMBER = {word: number for number, word in enumerate(WORDS)}


def ids(words: str) -> list[int]:
    """The ids of words written with spaces; `[` stands for [CLS], `]` for [SEP]."""
    return [NUMBER[{"[": "[CLS]", "]": "[SEP]"}.get(word, word)] for word in words.split()]


def words(numbers: Sequence[int]) -> str:
    return " ".join({"[CLS]": "[", "[SEP]": "]"}.get(WORDS[number], WORDS[number]) for number in numbers)


def tokenizer(**facts: Any) -> TextTokenizer:
    core = Tokenizer(models.WordLevel(dict(NUMBER), unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", NUMBER["[CLS]"]), ("[SEP]", NUMBER["[SEP]"])],
    )
    start: dict[str, Any] = {"cuts_start": False, "max_length": None, "embedded": None}
    return TextTokenizer(
        core=core,
        head=np.array(ids("[")),
        tail=np.array(ids("]")),
        special_ids=frozenset(ids("[ ]")),
        vocabulary=len(WORDS),
        **{**start, **facts},
    )

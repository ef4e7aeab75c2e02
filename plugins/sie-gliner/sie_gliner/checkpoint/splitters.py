"""The ways in which checkpoints split texts into words, by the `words_splitter_type` they were trained with."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from sie_core.contracts import ModelLoadError
from sie_gliner.checkpoint.bases import CONFIG_FILE

Word = tuple[str, int, int]
"""A word, and where it begins and ends in its text."""
Splitter = Callable[[str], Iterable[Word]]

WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
"""Letters and digits, joined by inner hyphens and underscores; otherwise one character that is no space."""
FETCHING = ("stanza", "hanlp", "universal")
"""Splitters that fetch models of their own."""


def make_splitter(name: str) -> Splitter:
    """Make a splitter that several threads may call.

    Raises:
        ModelLoadError: `CONFIG`: no splitter of that name exists that fetches nothing. `DEPENDENCY`: its package is
        missing.
    """
    if name == "whitespace":
        return split_at_spaces
    if name in FETCHING:
        raise ModelLoadError("CONFIG", f"It splits words with {name!r}, which fetches models of its own.")
    if name not in LANGUAGES:
        known = ", ".join(["whitespace", *LANGUAGES])
        raise ModelLoadError("CONFIG", f"{CONFIG_FILE}: words_splitter_type is {name!r}, and must be one of {known}.")
    module, package, make = LANGUAGES[name]
    try:
        return _one_at_a_time(make(import_module(module)))
    except ImportError as error:
        raise ModelLoadError(
            "DEPENDENCY", f"It splits words with {name!r}, and {package} is not installed: pip install {package}"
        ) from error


def split_at_spaces(text: str) -> Iterator[Word]:
    """Split at spaces, and around characters that are neither letter nor digit nor an inner hyphen."""
    return ((match.group(), match.start(), match.end()) for match in WORD.finditer(text))


def _found_in_turn(tokenize: Callable[[str], Iterable[str]]) -> Splitter:
    """Find each word in the text after the one before; words that do not occur literally are left out."""

    def split(text: str) -> Iterator[Word]:
        end = 0
        for word in tokenize(text):
            start = text.find(word, end)
            if start >= 0:
                end = start + len(word)
                yield word, start, end

    return split


def _of_spacy(spacy: Any) -> Splitter:
    pipeline = spacy.blank("en")
    return lambda text: ((token.text, token.idx, token.idx + len(token.text)) for token in pipeline(text))


LANGUAGES: dict[str, tuple[str, str, Callable[[Any], Splitter]]] = {
    "spacy": ("spacy", "spacy", _of_spacy),
    "mecab": ("mecab", "python-mecab-ko", lambda mecab: _found_in_turn(mecab.MeCab().morphs)),
    "jieba": ("jieba3", "jieba3", lambda jieba3: _found_in_turn(jieba3.jieba3().cut_text)),
    "janome": (
        "janome.tokenizer",
        "janome",
        lambda janome: _found_in_turn(partial(janome.Tokenizer().tokenize, wakati=True)),
    ),
    "camel": (
        "camel_tools.tokenizers.word",
        "camel-tools",
        lambda camel: _found_in_turn(camel.simple_word_tokenize),
    ),
    "hindi": (
        "indicnlp.tokenize.indic_tokenize",
        "indic-nlp-library",
        lambda indic: _found_in_turn(partial(indic.trivial_tokenize, lang="hi")),
    ),
}
"""Splitters of single languages: module, its name for pip, and a function from the module to the splitter."""


def _one_at_a_time(split: Splitter) -> Splitter:
    """Keep threads apart: which of these libraries' objects they may share is unknown."""
    lock = threading.Lock()

    def locked(text: str) -> list[Word]:
        with lock:
            return list(split(text))

    return locked

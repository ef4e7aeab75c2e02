"""Cuts the middle out of a long text before it is tokenised, if that provably does not change the tokens of both ends.

Between two letters with one space between them, the tokenizers known here always begin a new token, and neither side
changes the tokens of the other. Their normalizers look only at a character and its marks. They split texts at spaces,
or their vocabulary has no token that continues after a space. Each word has at least one token. So the first n words of
a text hold its first n tokens, and its last n words its last n.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece

LONG = 2**16
"""Characters of a text that is tokenised whole, and whose tokens are counted exactly."""

_PIECE = 2**14
"""Characters that one call of a regular expression looks at, 0.5 ms or less."""

_WORD_CHARACTERS = 16
"""Characters of a word with the space before it; an upper bound for most texts."""

_LETTER = "[0-9A-Za-zÀ-ÖØ-öø-ɏΆΈ-ΊΌΎΏΑ-ΡΣ-ώА-яёЁא-תء-يऄ-ह가-힣]"
"""Letters that no normalizer known here drops or joins with a space."""
_BETWEEN = re.compile(f"(?<={_LETTER})(?= {_LETTER})")
_NORMALIZERS = frozenset(
    {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Strip", "Precompiled"}
)
_SPLITTERS = frozenset({"BertPreTokenizer", "Whitespace", "WhitespaceSplit"})
_BESIDE = frozenset({"Digits", "Punctuation"})
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d"
_PATTERNS = frozenset(
    {
        rf"{_WORDS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",
        rf"{_WORDS}|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+",
        *(
            rf"(?i:{_WORDS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
            for digits in ("", "{1,3}")
        ),
    }
)
"""The patterns of GPT-2, CLIP, Qwen 2 and Llama 3: none of them matches a letter and a space after it."""


def cuts_between_words(core: Tokenizer) -> bool:
    """Whether what this module says of tokenizers is known to hold for one; it looks at all its parts."""
    normalizers, splitters = _parts(core.normalizer, "normalizers"), _parts(core.pre_tokenizer, "pretokenizers")
    if not isinstance(core.model, BPE | Unigram | WordLevel | WordPiece):
        return False
    bytes_alone = any(each["type"] == "ByteLevel" for each in splitters)
    if isinstance(core.model, BPE) and core.model.unk_token is None and not bytes_alone:
        return False  # it drops unknown characters, and a word may have no token
    if not all(map(_looks_at_one, normalizers)) or not all(map(_known, splitters)):
        return False
    if any(_joins(token.content, token.rstrip) for token in core.get_added_tokens_decoder().values()):
        return False
    if any(map(_splits, splitters)):
        return True
    marks = any(each["type"] == "Metaspace" or each.get("content") == "▁" for each in (*normalizers, *splitters))
    return marks and not bytes_alone and not any("▁" in piece.lstrip("▁") for piece in core.get_vocab())


def shortened(text: str, tokens: int) -> str:
    """Cut the middle out of a text, except as many words at both ends as hold `tokens` tokens each."""
    if len(text) <= LONG:
        return text
    first = next(islice(_between(text, 0), tokens - 1, None), None)
    if first is None:
        return text
    width = min(LONG, _WORD_CHARACTERS * tokens)
    while width < len(text):
        last = list(_between(text, len(text) - width))
        if len(last) >= tokens:
            return text[:first] + text[last[-tokens] :] if first < last[-tokens] else text
        width *= 2
    return text


def _between(text: str, start: int) -> Iterator[int]:
    """List the ends of words from `start` on, a piece at a time: a call for all would hold the interpreter's lock."""
    for begin in range(start, len(text), _PIECE):
        # One more character: an end is seen by what follows it.
        for found in _BETWEEN.finditer(text, begin, begin + _PIECE + 1):
            yield found.start()


def _parts(part: Any, inner: str) -> Sequence[Mapping[str, Any]]:
    if part is None:
        return ()
    state = json.loads(part.__getstate__())
    return _flat(state, inner)


def _flat(state: Mapping[str, Any], inner: str) -> list[Mapping[str, Any]]:
    return [each for part in state[inner] for each in _flat(part, inner)] if inner in state else [state]


def _looks_at_one(normalizer: Mapping[str, Any]) -> bool:
    if normalizer["type"] == "Prepend":
        return True
    if normalizer["type"] != "Replace":
        return normalizer["type"] in _NORMALIZERS
    pattern, content = normalizer["pattern"], normalizer["content"]
    if "Regex" in pattern:
        return pattern["Regex"] in {r"\s+", " {2,}"} and content in {" ", "▁"}
    spaces = " " in pattern["String"]
    return not spaces or (pattern["String"].isspace() and content in {" ", "▁"})


def _known(splitter: Mapping[str, Any]) -> bool:
    kind = splitter["type"]
    if kind == "Split":
        return splitter["pattern"].get("Regex") in _PATTERNS and splitter["behavior"] in {"Isolated", "Removed"}
    return kind in _SPLITTERS or kind in _BESIDE or kind in {"ByteLevel", "Metaspace"}


def _splits(splitter: Mapping[str, Any]) -> bool:
    kind = splitter["type"]
    if kind in {"ByteLevel", "Metaspace"}:
        return bool(splitter.get("use_regex" if kind == "ByteLevel" else "split", True))
    return kind in _SPLITTERS or kind == "Split"


def _joins(token: str, takes_space: bool) -> bool:
    # An added token is found in the raw text, before anything is split.
    return bool(re.search(rf"{_LETTER}[\s▁]", token)) or (takes_space and token[-1:].isalnum())

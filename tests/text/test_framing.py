"""The flags `add_bos_token` and `add_eos_token` are obeyed both ways, and what contradicts them otherwise is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from sie_text.tokenizer.framing import frame_by_flags
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = {name: number for number, name in enumerate(("<s>", "</s>", "[CLS]", "[SEP]", "<end>", "a", "b"))}
LLAMA = {"bos": "<s>", "eos": "</s>"}
DEBERTA = {"bos": "[CLS]", "cls": "[CLS]", "eos": "[SEP]", "sep": "[SEP]"}
QWEN3 = {"bos": None, "eos": "</s>"}
BOTH = {"add_bos_token": True, "add_eos_token": True}
NEITHER = {"add_bos_token": False, "add_eos_token": False}


def tokenizer(single: str | None, pair: str = "", *, levels: bool = False) -> Tokenizer:
    core = Tokenizer(models.WordLevel(WORDS, unk_token="a"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    if single is not None:
        used = [(name, number) for name, number in WORDS.items() if name in single]
        template = processors.TemplateProcessing(single=single, pair=pair or f"{single} $B:1", special_tokens=used)
        core.post_processor = processors.Sequence([processors.ByteLevel(), template]) if levels else template
    return core


@pytest.mark.parametrize("levels", [False, True], ids=["", "byte-level"])
@pytest.mark.parametrize(
    ("single", "pair", "flags", "framed", "paired"),
    [
        ("<s> $A", "<s> $A <s> $B", {"add_eos_token": True}, "<s> a </s>", "<s> a </s> <s> b </s>"),
        ("<s> $A", "<s> $A <s> $B", BOTH, "<s> a </s>", "<s> a </s> <s> b </s>"),
        ("<s> $A </s>", "<s> $A </s> $B </s>", {"add_bos_token": False}, "a </s>", "a </s> b </s>"),
        ("<s> $A </s>", "<s> $A </s> $B </s>", {"add_eos_token": False}, "<s> a", "<s> a b"),
        ("<s> $A </s>", "<s> $A </s> $B </s>", NEITHER, "a", "a b"),
        ("<s> $A </s>", "<s> $A </s> $B </s>", {}, "<s> a </s>", "<s> a </s> b </s>"),
    ],
)
def test_a_flag_puts_its_token_around_a_text_or_takes_it_away(
    single: str, pair: str, flags: Mapping[str, Any], framed: str, paired: str, levels: bool
) -> None:
    core = tokenizer(single, pair, levels=levels)
    assert frame_by_flags(core, flags, LLAMA) == []
    assert " ".join(core.encode("a").tokens) == framed
    assert " ".join(core.encode("a", "b").tokens) == paired


def test_a_tokenizer_without_a_template_gets_one() -> None:
    core = tokenizer(None)
    assert frame_by_flags(core, BOTH, LLAMA) == []
    pair = core.encode("a", "b")
    assert (pair.tokens, pair.type_ids) == (["<s>", "a", "</s>", "<s>", "b", "</s>"], [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    ("single", "flags", "tokens"),
    [
        ("[CLS] $A [SEP]", NEITHER, DEBERTA),
        ("$A <end>", {"add_bos_token": False}, QWEN3),
        ("$A <end>", NEITHER, QWEN3),
        ("<s> $A </s>", {"add_bos_token": None, "add_eos_token": "yes"}, LLAMA),
    ],
    ids=["DeBERTa", "Qwen3-Embedding", "Qwen3-Embedding, both", "no flags"],
)
def test_published_files_with_flags_that_mean_nothing_stay_as_they_are(
    single: str, flags: Mapping[str, Any], tokens: Mapping[str, str | None]
) -> None:
    core = tokenizer(single)
    before = core.encode("a").tokens
    assert frame_by_flags(core, flags, tokens) == []
    assert core.encode("a").tokens == before


@pytest.mark.parametrize(
    ("single", "flags", "tokens", "told"),
    [
        ("$A", {"add_eos_token": True}, {}, "add_eos_token is true, and the vocabulary has no eos_token"),
        ("$A", {"add_eos_token": True}, {"eos": "<gone>"}, "the vocabulary has no eos_token"),
        ("$A <end>", {"add_eos_token": True}, QWEN3, "add_eos_token is true, and tokenizer.json puts '<end>' there"),
        ("[CLS] $A", {"add_bos_token": True}, LLAMA, "add_bos_token is true, and tokenizer.json puts '[CLS]' there"),
    ],
)
def test_flags_that_contradict_the_files_are_told_and_change_nothing(
    single: str, flags: Mapping[str, Any], tokens: Mapping[str, str | None], told: str
) -> None:
    core = tokenizer(single)
    before = core.encode("a").tokens
    (said,) = frame_by_flags(core, flags, tokens)
    assert told in said
    assert core.encode("a").tokens == before


def test_a_vocabulary_without_a_letter_is_told() -> None:
    core = Tokenizer(models.BPE({"<s>": 0, "b": 1}, []))
    (said,) = frame_by_flags(core, {"add_bos_token": True}, {"bos": "<s>"})
    assert "gives a letter no token" in said

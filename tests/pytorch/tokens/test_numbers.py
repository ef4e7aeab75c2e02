"""Entities are those of transformers' pipeline: every architecture, kind of tokenizer and strategy, over odd texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sie_pytorch.families.tokens.loading import load

from tests.pytorch.encoders import context
from tests.pytorch.tokens.support import (
    LABELLING,
    PLAIN,
    STRATEGIES,
    Reference,
    assert_same,
    extract,
    odd_texts,
    plain_tokenizer,
    write_sentence_pieces,
    write_token_classifier,
    write_word_pieces,
)

TEXTS = 100
TOKENIZERS: dict[str, tuple[str, Callable[[Path, int], None], int]] = {
    "word pieces": ("bert", write_word_pieces, 2000),
    "sentence pieces": ("xlm-roberta", write_sentence_pieces, 2000),
    "bytes": ("modernbert", plain_tokenizer("bert"), 200),
}
"""An architecture, what writes its tokenizer, and the characters of a text: the longest has three windows and more."""


@pytest.mark.parametrize("name", LABELLING)
def test_every_architecture_labels_tokens_as_its_own_class_does(name: str, tmp_path: Path) -> None:
    folder = write_token_classifier(name, tmp_path)
    adapter, reference = load(context(folder)), Reference(folder)
    texts = [text for text in odd_texts(40) if reference.fits(text)]
    found = extract(adapter, texts)
    assert sum(map(len, found)) > len(texts) > 10
    assert len({span.label for spans in found for span in spans}) == 2
    for text, spans in zip(texts, found, strict=True):
        assert_same(spans, reference.spans(text, "simple"))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_words_and_groups_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    name, tokenizer, characters = TOKENIZERS[kind]
    folder = write_token_classifier(name, tmp_path, tokenizer=tokenizer)
    reference, texts = Reference(folder), [text[:characters] for text in odd_texts(TEXTS)]
    adapter, fitting = load(context(folder)), [reference.fits(text) for text in texts]
    assert 30 < sum(fitting) < TEXTS - 20
    assert max(len(reference.tokenizer.tokenize(text)) for text in texts) > 3 * reference.window
    for strategy in STRATEGIES:
        found = extract(adapter, texts, aggregation_strategy=strategy)
        for text, spans, fits in zip(texts, found, fitting, strict=True):
            assert_same(spans, (reference.spans if fits else reference.windowed)(text, strategy))


def test_plain_labels_are_grouped_by_themselves(tmp_path: Path) -> None:
    folder = write_token_classifier("electra", tmp_path, labels=PLAIN)
    reference = Reference(folder)
    texts = [text for text in odd_texts(60) if reference.fits(text)]
    for text, spans in zip(texts, extract(load(context(folder)), texts), strict=True):
        assert_same(spans, reference.spans(text, "simple"))

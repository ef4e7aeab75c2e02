"""Long texts lose their middle before they are tokenised, and keep every token that a limit may need."""

import random
from collections.abc import Callable

import pytest
from sie_text.tokenizer.shortening import LONG, cuts_between_words, shortened
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

NEEDED = 40
LATIN = "the otter Émile Straße naïve don't it's x_y 3.14 100,000 a b é ﬁne ½ ☃ .."
OTHERS = "ΣΊΣΥΦΟΣ река горная שלום سلام 한국어 東京"
WORDS = [*LATIN.split(), *OTHERS.split()]
BREAKS = [*("   "), "  ", "\n", "\n\n ", "\t", " - ", "", "\u00a0", "\u200b", " \u0301", "\r\n", "…"]
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def write(seed: int, characters: int) -> str:
    """Write a text of words of several scripts with anything between them."""
    chosen = random.Random(seed)
    parts = []
    while characters > 0:
        parts += [chosen.choice(WORDS), chosen.choice(BREAKS)]
        characters -= len(parts[-1]) + len(parts[-2])
    return "".join(parts)


def trained(model, trainer, normalizer=None, splitter=None) -> Tokenizer:
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if splitter is not None:
        tokenizer.pre_tokenizer = splitter
    tokenizer.train_from_iterator([write(99, 20_000)], trainer)
    return tokenizer


def unigram(splitter, normalizer=None) -> Tokenizer:
    trainer = trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    return trained(models.Unigram(), trainer, normalizer or normalizers.NFKC(), splitter)


def merged(normalizer=None, splitter=None, **model) -> Tokenizer:
    alphabet = [] if model else pre_tokenizers.ByteLevel.alphabet()
    special = ["<unk>"] if model else []
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    return trained(models.BPE(**model), trainer, normalizer, splitter)


def pieces() -> Tokenizer:
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    splitter = pre_tokenizers.BertPreTokenizer()
    return trained(models.WordPiece(unk_token="[UNK]"), trainer, normalizers.BertNormalizer(), splitter)


def chained(pattern: str) -> pre_tokenizers.Sequence:
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), bytes_alone])


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "BERT": pieces,
    "GPT-2": lambda: merged(splitter=pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "RoBERTa": lambda: merged(splitter=pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "Qwen": lambda: merged(normalizers.NFC(), chained(QWEN)),
    "XLM-R": lambda: unigram(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])),
    "T5": lambda: unigram(pre_tokenizers.Metaspace()),
    "Llama": lambda: merged(
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        pre_tokenizers.Split("▁", "merged_with_next"),
        unk_token="<unk>",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_without_its_middle_keeps_the_tokens_of_both_ends(kind: str) -> None:
    core = KINDS[kind]()
    if kind == "Llama":  # trained on words, and then not split into them, as the published ones
        core.pre_tokenizer = None
    assert cuts_between_words(core)
    for seed in range(4):
        text = write(seed, LONG + 5_000)
        short = shortened(text, NEEDED)
        assert len(short) < LONG / 4
        whole, left = (core.encode(each, add_special_tokens=False).ids for each in (text, short))
        assert whole[:NEEDED] == left[:NEEDED]
        assert whole[-NEEDED:] == left[-NEEDED:]
        assert len(whole) > len(left) >= 2 * NEEDED


def test_texts_that_are_not_long_or_have_few_words_stay_whole() -> None:
    for text in (write(1, LONG - 100), "x" * (LONG + 1), " " * (LONG + 1), "a b " * 10 + "-" * LONG):
        assert shortened(text, NEEDED) == text


@pytest.mark.parametrize(
    "change",
    [
        lambda core: setattr(core, "normalizer", normalizers.Replace(" ", "")),
        lambda core: setattr(core, "normalizer", normalizers.Replace(Regex("e .*"), "e")),
        lambda core: setattr(core, "pre_tokenizer", pre_tokenizers.Split(Regex(r"\w \w"), "isolated")),
        lambda core: setattr(core, "pre_tokenizer", None),
        lambda core: core.add_tokens([AddedToken("the otter")]),
        lambda core: core.add_tokens([AddedToken("otter", rstrip=True)]),
    ],
)
def test_a_tokenizer_that_may_look_across_a_space_reads_texts_whole(change: Callable[[Tokenizer], object]) -> None:
    core = KINDS["BERT"]()
    assert cuts_between_words(core)
    change(core)
    assert not cuts_between_words(core)

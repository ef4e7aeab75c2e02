"""What the tests of token classifiers share: tiny checkpoints, odd texts, and transformers' pipeline as reference."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers as tf
from sie_sentence_transformers.references.labels.entities import Entities
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers.models.auto.modeling_auto import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING

from sie_core.contracts import Adapter, Item, Task
from tests.pytorch.corpus import make_texts
from tests.pytorch.models import ARCHITECTURES, POSITIONS, VOCABULARY, randomise
from tests.pytorch.pairs.support import ask
from tests.pytorch.tokenizers import CORPUS, write_tokenizer

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PLAIN = ("O", "NAME", "CITY", "PHONE")
STRATEGIES = ("none", "simple", "first", "average", "max")
WITHIN = 1e-4
"""Of a score."""
SPREAD = 2.0
"""Deviation of the logits: a random head likes one label for all tokens unless its bias is set."""
LEARNT = (*CORPUS, *make_texts(100, 20, seed=2))
"""Texts of the vocabularies below."""
SINGLE = 240
"""Entries that are one character."""
LABELLING = tuple(
    name for name, each in ARCHITECTURES.items() if type(each.config()) in MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING
)
"""Architectures that transformers has a class for."""


class Span(NamedTuple):
    """An entity of either side."""

    start: int
    end: int
    label: str
    score: float


def write_token_classifier(
    name: str,
    folder: Path,
    *,
    labels: Sequence[str] = BIO,
    tokenizer: Callable[[Path, int], None] | None = None,
    seed: int = 0,
    **fields: Any,
) -> Path:
    """Write a checkpoint whose labels are about equally frequent, with random weights."""
    config = ARCHITECTURES[name].config()
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}
    for field, value in fields.items():
        setattr(config, field, value)
    model = tf.AutoModelForTokenClassification.from_config(config).eval()
    randomise(model, seed)
    _balance(model)
    model.save_pretrained(folder)
    longest = min(POSITIONS, config.get_text_config().max_position_embeddings) if _has_positions(config) else POSITIONS
    (tokenizer or plain_tokenizer(ARCHITECTURES[name].tokenizer))(folder, longest)
    return folder


def _has_positions(config: Any) -> bool:
    return hasattr(config, "max_position_embeddings")


@torch.inference_mode()
def _balance(model: Any) -> None:
    """Set scale and bias of the last layer by the logits of random tokens."""
    linear = (each for each in model.modules() if isinstance(each, torch.nn.Linear))
    (last,) = (each for each in linear if each.out_features == model.config.num_labels)
    ids = torch.randint(5, 300, (8, 40), generator=torch.Generator().manual_seed(1))
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.flatten(0, 1)
    scale = SPREAD / logits.std(dim=0).clamp(min=0.1)
    last.weight.mul_(scale[:, None])
    last.bias.copy_((last.bias - logits.mean(dim=0)) * scale)


def plain_tokenizer(style: str) -> Callable[[Path, int], None]:
    """Give the byte-level one of the other tests, whose tokens hold the space before a word."""
    return lambda folder, longest: write_tokenizer(style, folder, model_max_length=longest)


def write_word_pieces(folder: Path, longest: int) -> None:
    """Write a WordPiece tokenizer like that of `bert-base-uncased`, with a vocabulary that lacks most scripts."""
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    words = [word for text in LEARNT for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
    pieces = _common(words, lambda place, piece: piece if place == 0 else f"##{piece}")
    core = Tokenizer(
        models.WordPiece({piece: number for number, piece in enumerate((*special, *pieces))}, unk_token="[UNK]")
    )
    core.normalizer, core.pre_tokenizer, core.decoder = normalizer, splitter, decoders.WordPiece()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    roles = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    _save(core, folder, longest, roles)


def write_sentence_pieces(folder: Path, longest: int) -> None:
    """Write a Unigram tokenizer like that of XLM-R: spaces are part of tokens and not of their places."""
    normalizer, splitter = normalizers.NFKC(), pre_tokenizers.Metaspace()
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    words = [word for text in LEARNT for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
    pieces = _common(words, lambda place, piece: piece)
    scored = [
        *((piece, 0.0) for piece in special),
        *((piece, -math.log(place + 2)) for place, piece in enumerate(pieces)),
    ]
    core = Tokenizer(models.Unigram(scored, 3))
    core.normalizer, core.pre_tokenizer, core.decoder = normalizer, splitter, decoders.Metaspace()
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    roles = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    _save(core, folder, longest, roles)


def _common(words: Sequence[str], spell: Callable[[int, str], str]) -> list[str]:
    """List the commonest pieces of up to four characters, and single ones of which all else is made.

    A trainer of the tokenizers library gives another vocabulary at each run.
    """
    counts: Counter[str] = Counter()
    for word in words:
        for place in range(len(word)):
            counts.update(
                spell(place, word[place : place + length]) for length in (1, 2, 4) if place + length <= len(word)
            )
    single = {spell(min(place, 1), letter) for word in words for place, letter in enumerate(word)}
    ranked = sorted(counts, key=lambda piece: (piece not in single, -counts[piece], piece))
    letters = [piece for piece in ranked if piece in single][:SINGLE]
    return [*letters, *(piece for piece in ranked if piece not in single)][: VOCABULARY - 5]


def _save(core: Tokenizer, folder: Path, longest: int, roles: Mapping[str, str]) -> None:
    assert core.get_vocab_size() == VOCABULARY
    tf.PreTrainedTokenizerFast(
        tokenizer_object=core, model_max_length=longest, **{f"{role}_token": token for role, token in roles.items()}
    ).save_pretrained(folder)


@cache
def odd_texts(count: int) -> tuple[str, ...]:
    """Make texts of many scripts with emoji, combining marks, special tokens and all kinds of line ends."""
    draw = random.Random(3)
    texts = []
    for number in range(count):
        text = "  ".join(make_texts(draw.choice((1, 1, 2, 12)), 14, seed=number))
        marked = "".join(each + ("\N{COMBINING DIAERESIS}" if draw.random() < 0.03 else "") for each in text)
        texts.append(marked.replace("\n", draw.choice(("\n", "\r\n", "\r\n\r\n"))))
    return (*texts[:-3], "  ".join(texts[:20]), "", " \r\n ")


class Reference:
    """transformers' pipeline, and what it would be for texts beyond its window."""

    def __init__(self, folder: Path, window: int = POSITIONS) -> None:
        model = tf.AutoModelForTokenClassification.from_pretrained(str(folder)).eval()
        # It reads tokenizer.json as it is; the class of a model's type may make another normaliser, and we do not.
        self.tokenizer = tf.PreTrainedTokenizerFast.from_pretrained(str(folder))
        self.pipeline = tf.TokenClassificationPipeline(model=model, tokenizer=self.tokenizer, device="cpu")
        self.window = window
        self._long = Entities(self.pipeline, window)
        labelled = cache(self._long._labelled)  # the same for all strategies
        self._long._labelled = lambda ids, window: labelled(tuple(ids), window)

    def fits(self, text: str) -> bool:
        return len(self.tokenizer(text, truncation=False, verbose=False)["input_ids"]) <= self.window

    def spans(self, text: str, strategy: str) -> list[Span]:
        """Answer as the pipeline does; the whole text must fit."""
        return _spans(self.pipeline(text, aggregation_strategy=strategy))

    def windowed(self, text: str, strategy: str) -> list[Span]:
        """Answer for a text of any length as the reference of `sie verify` does."""
        found = self._long.entities(text, strategy, self.window)
        return [Span(each.start, each.end, each.label, each.score) for each in found]


def _spans(found: Sequence[dict[str, Any]]) -> list[Span]:
    """Read the pipeline's entities; those without a character are no spans of a text."""
    entities = [each for each in found if each.get("entity") != "O" and each.get("entity_group") != "O"]
    return [
        Span(each["start"], each["end"], each.get("entity_group") or each["entity"], float(each["score"]))
        for each in entities
        if each["start"] < each["end"]
    ]


def extract(adapter: Adapter, texts: Sequence[str], labels: Sequence[str] = (), **options: Any) -> list[list[Span]]:
    """Ask as the engine does; every entity's text must be what its offsets cut."""
    task = Task("extract", labels=tuple(labels), options=options)
    found = []
    for text, output in zip(texts, ask(adapter, [Item(text=text) for text in texts], task), strict=True):
        assert output.entities is not None
        spans = []
        for each in output.entities:
            assert each.start is not None
            assert each.end is not None
            assert each.text == text[each.start : each.end] != ""
            spans.append(Span(each.start, each.end, each.label, each.score))
        found.append(spans)
    return found


def assert_same(found: Sequence[Span], wanted: Sequence[Span], within: float = WITHIN) -> None:
    """Hold spans and labels against each other exactly, scores within a bound."""
    assert [each[:3] for each in found] == [each[:3] for each in wanted]
    assert [each.score for each in found] == pytest.approx([each.score for each in wanted], abs=within)

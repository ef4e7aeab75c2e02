"""A small byte-level tokenizer for test checkpoints: it knows every text, and places special tokens as families do."""

from __future__ import annotations

import random
import shutil
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import DebertaV2Tokenizer, PreTrainedTokenizerFast

CORPUS = (
    "the quick brown fox jumps over the lazy dog and the search engine ranks every document by its embedding",
    "a query is short and a document is long; the model reads both and the index keeps what it has read",
    "der schnelle braune Fuchs springt über den faulen Hund, und die Suchmaschine ordnet die Dokumente",
)
SPECIAL = {
    "bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "roberta": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    "t5": ("<pad>", "</s>", "<unk>"),
    "decoder": ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"),
}
ROLES = {
    "bert": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "roberta": {
        "bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>",
    },
    "t5": {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
    "decoder": {"pad": "<pad>", "eos": "<eos>", "bos": "<bos>", "unk": "<unk>", "mask": "<mask>"},
}  # fmt: skip
TEMPLATES = {
    "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
    "roberta": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    "t5": ("$A </s>", "$A </s> $B </s>"),
    "decoder": ("$A <eos>", "$A $B <eos>"),
}


def write_tokenizer(style: str, folder: Path, *, model_max_length: int = 512) -> None:
    """Write `tokenizer.json` and its config; at most 400 tokens, the special ones first."""
    names = ["input_ids", *(["token_type_ids"] if style == "bert" else []), "attention_mask"]
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_tokenizer(style)),
        model_max_length=model_max_length,
        padding_side="right",
        model_input_names=names,
        **{f"{role}_token": token for role, token in ROLES[style].items()},
    ).save_pretrained(folder)


@cache
def _tokenizer(style: str) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIAL[style]),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    single, pair = TEMPLATES[style]
    used = [(token, tokenizer.token_to_id(token)) for token in SPECIAL[style] if token in single]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=used)
    return tokenizer.to_str()


LETTERS = [chr(number) for number in range(ord("\N{CYRILLIC CAPITAL LETTER A}"), 0x410 + 120)]


def unigram() -> DebertaV2Tokenizer:
    """Make a tokenizer in which two letters in a row score about what a piece of both does.

    Its class builds the vocabulary itself, of the numbers as Python reads them.
    """
    draw = random.Random(0)
    pieces = [("[PAD]", 0.0), ("[UNK]", -30.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("[MASK]", 0.0)]
    for letter in LETTERS:
        score = -20 * draw.random()
        pieces += [(letter, score), (letter * 2, 2 * score), (letter * 3, 3 * score)]
    return DebertaV2Tokenizer(vocab=pieces, unk_id=1, model_max_length=512)


def write_unigram(checkpoint: Path, folder: Path) -> None:
    """Copy a checkpoint with the tokenizer `unigram` instead of its own."""
    shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
    unigram().save_pretrained(folder)

"""Trains a tiny BERT on names and places of a closed little world, with the labels of `dslim/bert-base-NER`."""

from __future__ import annotations

import random
from pathlib import Path

import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

LABELS = ("O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
WORDS = {
    "B-PER": ("Ada", "Noor", "Wei", "Ulla"),
    "I-PER": ("Marsh", "Tanaka", "Novak", "Lindqvist"),
    "B-LOC": ("Nairobi", "Cusco", "Zürich"),
    "O": ("the", "otter", "is", "well", "wrote", "to", "from", "that", "and", "saw", ".", ",", ":", "river", "in"),
}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
STEPS = 150
ROWS = 16
LENGTH = 12


def train(folder: Path) -> Path:
    """Save a checkpoint that labels every word of `WORDS` as its row says."""
    torch.set_num_threads(1)  # several would sum in another order
    torch.manual_seed(3)
    chance = random.Random(3)
    label_of = {word: label for label, words in WORDS.items() for word in words}
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *label_of))}
    config = tf.BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        id2label=dict(enumerate(LABELS)), label2id={label: number for number, label in enumerate(LABELS)},
    )  # fmt: skip
    model = tf.BertForTokenClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        rows = [[chance.choice(list(label_of)) for _ in range(LENGTH)] for _ in range(ROWS)]
        ids = torch.tensor([[2, *(vocabulary[word] for word in row), 3] for row in rows])
        labels = torch.tensor([[0, *(LABELS.index(label_of[word]) for word in row), 0] for row in rows])
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    model.eval().save_pretrained(folder)
    _tokenizer(vocabulary).save_pretrained(folder)
    return folder


def _tokenizer(vocabulary: dict[str, int]) -> tf.PreTrainedTokenizerFast:
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=False)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    roles = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=core, model_max_length=32, **{f"{role}_token": token for role, token in roles.items()}
    )

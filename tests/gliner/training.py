"""Trains a tiny GLiNER on planted entities until it finds them all."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.gliner.checkpoints import encoder_config, save, tokenizer_of
from tests.gliner.planting import LABELS, WORDS, plant

STEPS = 400
ROWS = 8
RATE = 5e-3
HIDDEN = 48
WINDOW = 40
WIDTH = 4
TOKENS = 160


def train(folder: Path) -> Path:
    """Save a checkpoint that finds what `plant` plants; its tokenizer gives marks and joiners no token."""
    from gliner import GLiNER

    torch.set_num_threads(1)  # several would sum in another order
    torch.manual_seed(3)
    chance = random.Random(3)
    tokenizer = tokenizer_of(_pieces(), strips=True, positions=TOKENS)
    tokenizer.save_pretrained(folder / "encoder")
    model = GLiNER.from_config(_config(folder, len(tokenizer)), backbone_from_pretrained=False, local_files_only=True)
    has_tokens = cache(lambda word: bool(tokenizer.tokenize(word)))
    collator = model.data_collator_class(model.config, data_processor=model.data_processor, prepare_labels=True)
    optimizer = torch.optim.AdamW(model.model.parameters(), lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20) * (1 - step / STEPS))
    model.model.train()
    for _ in range(STEPS):
        batch = collator([_example(chance, model, has_tokens) for _ in range(ROWS)])
        optimizer.zero_grad()
        (model.model(**batch, alpha=0.75, gamma=2.0).loss / ROWS).backward()
        torch.nn.utils.clip_grad_norm_(model.model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
    model.eval()
    save(model, folder / "trained")
    return folder / "trained"


def _config(folder: Path, vocabulary: int) -> dict[str, Any]:
    """Describe one layer whose label states are those of the labels' own words: that is learned in seconds."""
    encoder = {
        **encoder_config("bert", vocabulary),
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 1,
        "max_position_embeddings": TOKENS,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return {
        "model_name": str(folder / "encoder"),
        "encoder_config": encoder,
        "hidden_size": HIDDEN,
        "max_width": WIDTH,
        "max_len": WINDOW,
        "dropout": 0.0,
        "num_rnn_layers": 0,
        "embed_ent_token": False,
    }


def _pieces() -> list[str]:
    """Name what is left of the world's words once marks are stripped, one piece a word or CJK character."""
    plain = ["".join(filter(_is_kept, unicodedata.normalize("NFD", word.lower()))) for word in WORDS]
    return [piece for word in plain if word for piece in (word if ord(word[0]) > 0x2FFF else [word])]


def _is_kept(character: str) -> bool:
    return not unicodedata.category(character).startswith(("M", "C"))


def _example(chance: random.Random, model: Any, has_tokens: Callable[[str], bool]) -> dict[str, Any]:
    """Make one window of planted text, as the words that have tokens; a few labels are asked for that nothing has."""
    made = plant(chance.randrange(10**9), characters=chance.randint(40, 220))
    words = [each for each in model.data_processor.words_splitter(made.text) if has_tokens(each[0])]
    words = words[chance.randint(0, 3) :][:WINDOW]
    asked = chance.sample([*LABELS, "food", "date"], chance.randint(1, 6))
    found = []
    for start, end, label in made.planted:
        inside = [place for place, (_, first, last) in enumerate(words) if start <= first and last <= end]
        whole = inside and words[inside[0]][1] == start and inside[-1] + 1 < len(words)
        if whole and label in asked:
            found.append((inside[0], inside[-1], label))
    return {"tokenized_text": [word for word, _, _ in words], "ner": found, "ner_labels": asked}

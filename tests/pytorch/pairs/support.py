"""What the tests of models of pairs share: tiny checkpoints, and our adapter driven as the engine does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import transformers as tf
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder
from sie_pytorch.families.pairs.loading import load
from sie_pytorch.forward.specs import RUNNERS

from sie_core.catalog import read_card
from sie_core.contracts import (
    Adapter,
    Device,
    Item,
    ItemOutput,
    KeptChoices,
    LoadContext,
    ModelConfig,
    Profile,
    ResolvedModel,
    RunnerSpec,
    Task,
    Unit,
)
from tests.pytorch.models import ARCHITECTURES, HEADS, HIDDEN, LAYERS, POSITIONS, VOCABULARY, Architecture, randomise
from tests.pytorch.tokenizers import write_tokenizer

MODEL = "test/pairs"
QUERY = "which document does the engine rank first?"
DOCUMENTS = (
    "the search engine ranks every document by its embedding",
    "a query is short",
    "",
    "der schnelle braune Fuchs springt über den faulen Hund \N{FOX FACE}",
    "the index keeps what it has read and the model reads both, " * 2,
    "lazy dog",
)
NLI = {0: "contradiction", 1: "neutral", 2: "entailment"}


def _bart() -> Any:
    return tf.BartConfig(
        vocab_size=VOCABULARY, d_model=HIDDEN, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_ffn_dim=48,
        decoder_ffn_dim=48, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS,
        max_position_embeddings=POSITIONS, bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
    )  # fmt: skip


CLASSIFIERS = {**ARCHITECTURES, "bart": Architecture("bart", _bart, "roberta", packed=False)}
"""The architectures of the encoders, and one whose classifier reads its decoder."""


def write_classifier(
    name: str, folder: Path, *, labels: int | dict[int, str] = 1, seed: int = 0, **fields: Any
) -> Path:
    """Write a checkpoint of the sequence classifier of an architecture."""
    config = CLASSIFIERS[name].config()
    if isinstance(labels, int):
        config.num_labels = labels
    else:
        config.id2label, config.label2id = labels, {label: number for number, label in labels.items()}
    for field, value in fields.items():
        setattr(config, field, value)
    return _write(tf.AutoModelForSequenceClassification.from_config(config), name, folder, seed)


def write_language_model(name: str, folder: Path, *, seed: int = 0, **fields: Any) -> Path:
    """Write a checkpoint of the causal language model of an architecture."""
    config = ARCHITECTURES[name].config()
    for field, value in fields.items():
        setattr(config, field, value)
    return _write(tf.AutoModelForCausalLM.from_config(config), name, folder, seed)


def _write(model: Any, name: str, folder: Path, seed: int) -> Path:
    randomise(model, seed)
    model.save_pretrained(folder)
    write_tokenizer(CLASSIFIERS[name].tokenizer, folder)
    return folder


def change_json(file: Path, **fields: Any) -> None:
    """Set fields of a JSON file; None takes one out."""
    content = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def context(
    folder: Path,
    *,
    runtime: dict[str, Any] | None = None,
    loadtime: dict[str, Any] | None = None,
    runners: Sequence[RunnerSpec] = RUNNERS,
    precision: str = "float32",
    choices: KeptChoices | None = None,
    **config: Any,
) -> LoadContext:
    profile = Profile("default", runtime=runtime or {}, loadtime=loadtime or {})
    model = ResolvedModel(MODEL, ModelConfig(MODEL, profiles={"default": profile}, **config), profile)
    card = read_card(folder)
    return LoadContext(
        model, Device("cpu"), precision, weights=folder, card=card, threads=1, runners=tuple(runners), choices=choices
    )


def serve(folder: Path, **arguments: Any) -> Adapter:
    return load(context(folder, **arguments))


def reference(folder: Path, **arguments: Any) -> CrossEncoder:
    return CrossEncoder(str(folder), device="cpu", local_files_only=True, **arguments)


def pairs(documents: Sequence[str] = DOCUMENTS, query: str = QUERY) -> list[tuple[str, str]]:
    return [(query, document) for document in documents]


def score(
    adapter: Adapter, documents: Sequence[str] = DOCUMENTS, query: str = QUERY, **fields: Any
) -> NDArray[np.float64]:
    """Score documents in one batch."""
    task = Task("score", query=Item(text=query), **fields)
    outputs = ask(adapter, [Item(text=document) for document in documents], task)
    return np.array([output.score for output in outputs])


def extract(adapter: Adapter, texts: Sequence[str], *labels: str, **fields: Any) -> list[dict[str, float]]:
    """Classify texts by labels, in one batch; the order of the labels is that of the answer."""
    outputs = ask(adapter, [Item(text=text) for text in texts], Task("extract", labels=labels, **fields))
    return [{each.label: each.score for each in output.classifications or ()} for output in outputs]


def ask(adapter: Adapter, items: Sequence[Item], task: Task) -> list[ItemOutput]:
    """Answer as the engine does: prepare, run all units of a task cheapest first, finish, combine."""
    units = list(adapter.prepare(items, task))
    assert len({unit.key for unit in units}) == 1
    order = sorted(units, key=lambda unit: unit.cost)
    finished = dict(zip(map(id, order), adapter.finish(order, adapter.run(order)), strict=True))
    answers = []
    for index in range(len(items)):
        own: list[Unit] = [unit for unit in units if unit.item == index]
        outputs = [finished[id(unit)] for unit in own]
        answers.append(adapter.combine(own, outputs) if len(own) > 1 else outputs[0])
    return answers


def deviation(ours: Any, theirs: Any) -> float:
    """Measure the largest difference."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max())

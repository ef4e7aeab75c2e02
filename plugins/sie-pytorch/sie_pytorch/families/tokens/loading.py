"""Loads a token classifier: the checkpoint's own class on the states of a runner."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from sie_text.entities import EntityPreparation, TagSet
from sie_text.labels import Labels
from sie_text.lengths import Lengths, sequence_lengths
from sie_text.loading import (
    Stages,
    disable_progress_bars,
    needed_card,
    profile_options,
    require_weights,
    run_once,
)
from sie_text.recipe import NotUnderstoodError, TransformerSettings
from sie_text.tokenizer import load_tokenizer

from sie_core.contracts import LoadContext, ModelCard, ModelFacts, ModelLoadError, Task, device_errors
from sie_pytorch.families.tokens.adapter import TokenClassifier
from sie_pytorch.heads import HeadContext
from sie_pytorch.heads.composed.judging import HeadJudge
from sie_pytorch.heads.composed.running import runner_for
from sie_pytorch.heads.entities import EntityHead

AUTO_CLASS = "AutoModelForTokenClassification"
UNNAMED_LABELS = 2
"""transformers' own number if a config.json names none."""


def load(context: LoadContext) -> TokenClassifier:
    """Load a model of the family `pytorch-tokens`.

    Raises:
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
    """
    try:
        return _load(context)
    except NotUnderstoodError as reason:
        why = str(reason).rstrip(".")
        raise ModelLoadError("CONFIG", f"{context.model.id} is not served as a token classifier: {why}.") from reason


def _load(context: LoadContext) -> TokenClassifier:
    card, config, stages = needed_card(context), context.model.config, Stages(context)
    require_weights(card)
    disable_progress_bars()
    tokenizer = load_tokenizer(card, trust_remote_code=config.trust_remote_code)
    tags = _tags(card)
    stages.done("tokenizer")
    device, task = torch.device(str(context.device)), Task("extract", options=profile_options(context))

    def prepare(limit: int | None) -> tuple[EntityPreparation, Lengths, str | None]:
        lengths, note = sequence_lengths(config, card, TransformerSettings(), tokenizer, limit)
        return EntityPreparation(context.model.id, tokenizer, lengths, tags), lengths, note

    judge = HeadJudge(
        lambda items, limit: (each for windows in prepare(limit)[0].sequences(items, task) for each in windows),
        lambda size: _head(HeadContext(card, tokenizer, size, "float32", device), tags),
        task,
        device,
    )
    runner = runner_for(context, card, (AUTO_CLASS,), takes_lora=True, judge=judge)
    info = runner.info
    with device_errors():
        head = _head(HeadContext(card, tokenizer, info.hidden_size, info.precision, device), tags)
    stages.done("weights")
    preparation, lengths, length_note = prepare(info.max_sequence_length)
    gives_types = info.embeds_types and tokenizer.takes_types
    model = TokenClassifier(preparation, runner, head, gives_types=gives_types, device=device, threads=context.threads)
    run_once(model, context, task)
    stages.done("warm")
    window = f"{lengths.default} tokens; longer texts are read in windows that overlap"
    notes = {"tokenizer": tokenizer.note, "max_sequence_length": length_note, "window": window}
    model.facts = ModelFacts(
        operations=("extract",),
        takes_labels="optional",
        max_sequence_length=lengths.default,
        memory_bytes=info.memory_bytes + head.memory_bytes,
        takes_lora=runner.takes_lora,
        precision=info.precision,
        notes={**info.notes, **{name: note for name, note in notes.items() if note}, **head.notes},
    )
    return model


def _tags(card: ModelCard) -> TagSet:
    """Read the labels of the checkpoint."""
    names = card.config.get("id2label")
    count = len(names) if isinstance(names, Mapping) and names else UNNAMED_LABELS
    return TagSet.of(Labels.of(card, count, None).names)


def _head(context: HeadContext, tags: TagSet) -> EntityHead:
    # Imports transformers' classes.
    from sie_pytorch.heads.own_class.token_classifier import load_token_classifier

    logits = load_token_classifier(context.card.path, context.card.records).to(context.device)
    if logits.labels != len(tags.labels):
        raise NotUnderstoodError(f"it names {len(tags.labels)} labels, and its class has {logits.labels}")
    return EntityHead(logits, tags)

"""Loads a token classifier: the checkpoint's own class on the states of a runner."""

from __future__ import annotations

import torch
from sie_text.entities import TagSet
from sie_text.heads import EntityHead, EntityParts
from sie_text.loading import Stages, disable_progress_bars
from sie_text.recipe import NotUnderstoodError

from sie_core.contracts import LoadContext, ModelLoadError, device_errors
from sie_pytorch.families.tokens.adapter import TokenClassifier
from sie_pytorch.heads import HeadContext
from sie_pytorch.heads.composed.judging import HeadJudge
from sie_pytorch.heads.composed.running import runner_for

AUTO_CLASS = "AutoModelForTokenClassification"


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
    stages = Stages(context)
    disable_progress_bars()
    parts = EntityParts(context)
    card, tokenizer, tags = parts.card, parts.tokenizer, parts.tags
    stages.done("tokenizer")
    device = torch.device(str(context.device))
    judge = HeadJudge(
        parts.probes,
        lambda size: _head(HeadContext(card, tokenizer, size, "float32", device), tags),
        parts.task,
        device,
    )
    runner = runner_for(context, card, (AUTO_CLASS,), takes_lora=True, judge=judge)
    info = runner.info
    with device_errors():
        head = _head(HeadContext(card, tokenizer, info.hidden_size, info.precision, device), tags)
    stages.done("weights")
    preparation = parts.preparation(info.max_sequence_length)
    gives_types = info.embeds_types and tokenizer.takes_types
    model = TokenClassifier(preparation, runner, head, gives_types=gives_types, device=device, threads=context.threads)
    model.facts = parts.facts(
        model,
        head,
        info.notes,
        memory_bytes=info.memory_bytes,
        precision=info.precision,
        takes_lora=runner.takes_lora,
    )
    stages.done("warm")
    return model


def _head(context: HeadContext, tags: TagSet) -> EntityHead:
    # Imports transformers' classes.
    from sie_pytorch.heads.own_class.token_classifier import load_token_classifier

    logits = load_token_classifier(context.card.path, context.card.records).to(context.device)
    if logits.labels != len(tags.labels):
        raise NotUnderstoodError(f"it names {len(tags.labels)} labels, and its class has {logits.labels}")
    return EntityHead(logits, tags)

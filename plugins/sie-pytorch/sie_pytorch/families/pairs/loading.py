"""Loads a model that reads two texts at once: files, tokenizer, runner, head, and a warm-up with one pair."""

from __future__ import annotations

import torch
from sie_text.heads import PairParts
from sie_text.loading import Stages, disable_progress_bars
from sie_text.recipe import NotUnderstoodError

from sie_core.contracts import LoadContext, ModelLoadError, device_errors
from sie_pytorch.families.pairs.adapter import PairModel
from sie_pytorch.families.pairs.heads import load_head
from sie_pytorch.heads import HeadContext
from sie_pytorch.heads.composed.judging import HeadJudge
from sie_pytorch.heads.composed.running import runner_for


def load(context: LoadContext) -> PairModel:
    """Load a model of the family `pytorch-pairs`.

    Raises:
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
    """
    try:
        return _load(context)
    except NotUnderstoodError as reason:
        why = str(reason).rstrip(".")
        raise ModelLoadError("CONFIG", f"{context.model.id} is not served as a model of pairs: {why}.") from reason


def _load(context: LoadContext) -> PairModel:
    stages = Stages(context)
    disable_progress_bars()
    parts = PairParts(context)
    card, recipe, tokenizer = parts.card, parts.recipe, parts.tokenizer
    stages.done("tokenizer")
    device = torch.device(str(context.device))
    judge = HeadJudge(
        parts.probes,
        lambda size: load_head(recipe, HeadContext(card, tokenizer, size, "float32", device)),
        parts.probe_task,
        device,
        gives_types=parts.gives_types,
    )
    runner = runner_for(context, card, parts.auto_classes, judge=judge)
    info = runner.info
    with device_errors():
        head = load_head(recipe, HeadContext(card, tokenizer, info.hidden_size, info.precision, device))
    stages.done("weights")
    preparation = parts.preparation(info.max_sequence_length)
    model = PairModel(
        context.model.id,
        preparation,
        runner,
        head,
        gives_types=parts.gives_types,
        device=device,
        threads=context.threads,
    )
    model.facts = parts.facts(model, head, info.notes, memory_bytes=info.memory_bytes, precision=info.precision)
    stages.done("warm")
    return model

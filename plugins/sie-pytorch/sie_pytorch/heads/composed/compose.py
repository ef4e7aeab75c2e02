"""Loads a checkpoint's tokenizer and transformer, puts heads on it, and brings the facts of all together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sie_text.heads import TextParts
from sie_text.loading import Stages, disable_progress_bars, needed_card, profile_options, require_weights
from sie_text.recipe import NotUnderstoodError, Recipe

from sie_core.contracts import FamilyUnfitError, LoadContext, Task, device_errors
from sie_pytorch.heads.composed.encoder import TextEncoder
from sie_pytorch.heads.composed.judging import HeadJudge
from sie_pytorch.heads.composed.running import runner_for
from sie_pytorch.heads.protocol import HeadContext, HeadMaker


def compose(
    context: LoadContext,
    recipe: Recipe,
    heads: Sequence[HeadMaker],
    *,
    auto_classes: Sequence[str] = (),
    judged: HeadMaker | None = None,
) -> TextEncoder:
    """Load a model of single texts: `context.card`'s tokenizer and transformer, the fastest runner, and your heads.

    Prompts, lengths, truncation, token ids, packing, LoRA adapters and the options of
    `sie_text.options.ENCODER_OPTIONS` work as in the family `pytorch`.

    Args:
        context: The model to load and its device.
        recipe: The files' recipe, `sie_text.recipe.read_recipe(context.card)`, or your own. Its `transformer`,
            `prompts`, `multivector.expansion`, `notes` and `pooling.include_prompt` are used; its heads are for
            `head_makers`.
        heads: A maker for each head. Heads of vectors serve `encode`, a head of classifications serves `extract`.
        auto_classes: transformers' names of the classes, such as `AutoModelForMaskedLM`, that your heads are parts of.
            Weights made for their own class are refused (`sie_text.recipe.heed_auto_map`).
        judged: The one of them whose first tensor has logits that end in a threshold or a ranking; if half precision
            changes these, the model is served in float32.

    Returns:
        The adapter, warm, with its facts.

    Raises:
        FamilyUnfitError: sie-pytorch runs no such transformer, or a head raised `NotUnderstoodError`.
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
        ValueError: Two heads make the same output.
    """
    try:
        return _composed(context, recipe, heads, auto_classes, judged)
    except NotUnderstoodError as reason:
        raise unfit(context, reason) from reason


def unfit(context: LoadContext, reason: NotUnderstoodError) -> FamilyUnfitError:
    """Make the error of a checkpoint that the packed text encoder does not serve."""
    why = str(reason).rstrip(".")
    return FamilyUnfitError(f"The packed text encoder does not serve {context.model.id}: {why}.")


def _composed(
    context: LoadContext,
    recipe: Recipe,
    makers: Sequence[HeadMaker],
    auto_classes: Sequence[str],
    judged: HeadMaker | None,
) -> TextEncoder:
    card, stages = needed_card(context), Stages(context)
    require_weights(card)
    disable_progress_bars()
    parts = TextParts(context, recipe)
    stages.done("tokenizer")
    device = torch.device(str(context.device))
    judge = None
    if judged is not None:
        task, make = Task("extract", options=profile_options(context)), judged
        judge = HeadJudge(
            lambda items, limit: parts.preparation(limit).sequences(items, task),
            lambda size: make(HeadContext(card, parts.tokenizer, size, precision="float32", device=device)),
            task,
            device,
        )
    runner = runner_for(
        context,
        card,
        auto_classes,
        expands_queries=parts.expansion is not None and not parts.expansion.attended,
        takes_lora=True,
        dense=recipe.pooling is not None,
        judge=judge,
    )
    info = runner.info
    with device_errors():
        given = HeadContext(card, parts.tokenizer, info.hidden_size, precision=info.precision, device=device)
        heads = [make(given) for make in makers]
    stages.done("weights")
    gives_types = info.embeds_types and parts.tokenizer.takes_types
    preparation = parts.preparation(info.max_sequence_length)
    encoder = TextEncoder(preparation, runner, heads, device, context.threads, gives_types=gives_types)
    encoder.facts = parts.facts(
        encoder,
        heads,
        info.notes,
        memory_bytes=info.memory_bytes,
        precision=info.precision,
        takes_lora=runner.takes_lora,
    )
    stages.done("warm")
    return encoder

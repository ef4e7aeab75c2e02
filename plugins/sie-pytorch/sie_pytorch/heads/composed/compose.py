"""Loads a checkpoint's tokenizer and transformer, puts heads on it, and brings the facts of all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import torch
from sie_text.encode import Expansion, TextPreparation
from sie_text.lengths import Lengths, sequence_lengths
from sie_text.loading import (
    Stages,
    disable_progress_bars,
    matryoshka_dims,
    missing_outputs,
    needed_card,
    profile_options,
    require_weights,
    run_once,
    similarities,
    warm_up,
)
from sie_text.prompts import Prompts
from sie_text.recipe import ExpansionSettings, NotUnderstoodError, Recipe
from sie_text.tokenizer import TextTokenizer, load_tokenizer

from sie_core.contracts import (
    FamilyUnfitError,
    LoadContext,
    ModelCard,
    ModelFacts,
    Operation,
    OutputType,
    Task,
    device_errors,
)
from sie_pytorch.heads.composed.encoder import EXTRACTED, TextEncoder
from sie_pytorch.heads.composed.judging import HeadJudge
from sie_pytorch.heads.composed.running import runner_for
from sie_pytorch.heads.protocol import HeadContext, HeadMaker, Output


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
    card, config, stages = needed_card(context), context.model.config, Stages(context)
    require_weights(card)
    prompts = Prompts.of(card, dict(recipe.prompts))
    disable_progress_bars()
    tokenizer = _load_tokenizer(card, recipe, trust_remote_code=config.trust_remote_code)
    expansion = _read_expansion(recipe, tokenizer)
    stages.done("tokenizer")
    device = torch.device(str(context.device))

    def prepare(limit: int | None) -> tuple[TextPreparation, Lengths, str | None]:
        lengths, note = sequence_lengths(config, card, recipe.transformer, tokenizer, limit, _expansion(recipe))
        preparation = TextPreparation(
            context.model.id,
            tokenizer,
            prompts,
            lengths,
            pools_prompt=recipe.pooling is None or recipe.pooling.include_prompt,
            takes_ids=config.accept_token_ids,
            expansion=expansion,
        )
        return preparation, lengths, note

    judge = None
    if judged is not None:
        task, make = Task("extract", options=profile_options(context)), judged
        judge = HeadJudge(
            lambda items, limit: prepare(limit)[0].sequences(items, task),
            lambda size: make(HeadContext(card, tokenizer, size, "float32", device)),
            task,
            device,
        )
    runner = runner_for(
        context,
        card,
        auto_classes,
        expands_queries=expansion is not None and not expansion.attended,
        takes_lora=True,
        dense=recipe.pooling is not None,
        judge=judge,
    )
    info = runner.info
    with device_errors():
        given = HeadContext(card, tokenizer, info.hidden_size, info.precision, device)
        heads = [make(given) for make in makers]
    stages.done("weights")
    preparation, lengths, length_note = prepare(info.max_sequence_length)
    gives_types = info.embeds_types and tokenizer.takes_types
    encoder = TextEncoder(preparation, runner, heads, device, context.threads, gives_types=gives_types)
    facts = _warmed(encoder, context, [head.output for head in heads])
    stages.done("warm")
    notes = {
        "tokenizer": tokenizer.note,
        "prompts": prompts.note,
        "max_sequence_length": length_note,
        "outputs": missing_outputs(config, facts.outputs),
        **dict(recipe.notes),
    }
    told = (info.notes, {name: note for name, note in notes.items() if note}, *(head.notes for head in heads))
    encoder.facts = replace(
        facts,
        classes=tuple(name for head in heads for name in head.classes),
        max_sequence_length=lengths.default,
        memory_bytes=info.memory_bytes + sum(head.memory_bytes for head in heads),
        precision=info.precision,
        takes_lora=runner.takes_lora,
        notes={name: note for notes in told for name, note in notes.items()},
    )
    return encoder


def _warmed(encoder: TextEncoder, context: LoadContext, made: Sequence[Output]) -> ModelFacts:
    """Run one text through every head, as the profile asks; return the facts of the outputs."""
    outputs = tuple(kind for kind in get_args(OutputType) if kind in made)
    operations: list[Operation] = []
    dims: dict[OutputType, int] = {}
    if outputs:
        dims = warm_up(encoder, context, outputs)
        operations.append("encode")
    if set(EXTRACTED) <= set(made):
        run_once(encoder, context, Task("extract", options=profile_options(context)))
        operations.append("extract")
    return ModelFacts(
        outputs,
        tuple(operations),
        dims=dims,
        similarity=similarities(context, *outputs),
        matryoshka_dims=matryoshka_dims(context.model.config, needed_card(context), dims["dense"])
        if "dense" in dims
        else (),
    )


def _load_tokenizer(card: ModelCard, recipe: Recipe, *, trust_remote_code: bool) -> TextTokenizer:
    markers = () if recipe.multivector is None else recipe.multivector.markers
    tokenizer = load_tokenizer(card, recipe.transformer, trust_remote_code=trust_remote_code, markers=markers)
    if not recipe.declared and tokenizer.chat_template is not None:
        raise NotUnderstoodError("texts go through its chat template")
    return tokenizer


def _expansion(recipe: Recipe) -> ExpansionSettings | None:
    return None if recipe.multivector is None else recipe.multivector.expansion


def _read_expansion(recipe: Recipe, tokenizer: TextTokenizer) -> Expansion | None:
    expansion = _expansion(recipe)
    if expansion is None:
        return None
    return Expansion(expansion.length, tokenizer.expansion_token(expansion.token), expansion.attended)

"""Loads a model that reads two texts at once: files, tokenizer, runner, head, and a warm-up with one pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from sie_text.heads import PairHead
from sie_text.lengths import Lengths, sequence_lengths
from sie_text.loading import (
    PROBE_TEXTS,
    Stages,
    disable_progress_bars,
    needed_card,
    profile_options,
    require_weights,
    run_once,
)
from sie_text.pairs import (
    QWEN3_INSTRUCTION,
    QWEN3_RERANKER,
    PairFrame,
    PairPreparation,
    PairTemplate,
    chat_template,
    format_template,
)
from sie_text.prompts import Prompts
from sie_text.recipe import NotUnderstoodError, PairRecipe, read_pair_recipe
from sie_text.tokenizer import TextTokenizer, load_tokenizer

from sie_core.contracts import (
    Item,
    LoadContext,
    ModelCard,
    ModelFacts,
    ModelLoadError,
    Operation,
    Task,
    device_errors,
)
from sie_pytorch.families.pairs.adapter import PairModel
from sie_pytorch.families.pairs.heads import load_head
from sie_pytorch.heads import HeadContext
from sie_pytorch.heads.composed.judging import HeadJudge
from sie_pytorch.heads.composed.running import runner_for

MATCH, NO_MATCH = "yes", "no"
"""Answer tokens of a language model if the files name none, as in sentence-transformers."""
AUTO_CLASSES: Mapping[str, tuple[str, ...]] = {
    "classifier": ("AutoModelForSequenceClassification",),
    "vocabulary": ("AutoModelForCausalLM",),
}
"""The class of transformers whose head gives the logits."""


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
    card, config, name = needed_card(context), context.model.config, context.model.id
    require_weights(card)
    recipe, prompts, stages = read_pair_recipe(card), Prompts.of(card), Stages(context)
    if recipe.single_texts and not context.model.profile.runtime.get("score_label"):
        raise NotUnderstoodError(
            f"{recipe.reason}, as the family pytorch-classify does; if it was trained to rank pairs, name the label "
            "that is the score as `score_label` in the profile's runtime options"
        )
    disable_progress_bars()
    tokenizer = load_tokenizer(card, recipe.transformer, trust_remote_code=config.trust_remote_code)
    frame = PairFrame.of(tokenizer.core)
    recipe = _with_tokens(recipe, tokenizer, context)
    template, template_note = _template(recipe, card, tokenizer)
    stages.done("tokenizer")
    device, gives_types = torch.device(str(context.device)), tokenizer.takes_types and _has_types(card)

    def prepare(limit: int | None) -> tuple[PairPreparation, Lengths, str | None]:
        lengths, note = _lengths(context, card, recipe, tokenizer, frame, limit)
        made = PairPreparation(name, tokenizer, frame, prompts, lengths, recipe.truncation, template)
        return made, lengths, note

    task = Task("score", query=Item(text=PROBE_TEXTS[0]), options=profile_options(context))
    judge = HeadJudge(
        lambda items, limit: prepare(limit)[0].score_sequences(items, task),
        lambda size: load_head(recipe, HeadContext(card, tokenizer, size, precision="float32", device=device)),
        task,
        device,
        gives_types=gives_types,
    )
    runner = runner_for(context, card, AUTO_CLASSES.get(recipe.source, ()), judge=judge)
    info = runner.info
    with device_errors():
        head = load_head(
            recipe, HeadContext(card, tokenizer, info.hidden_size, precision=info.precision, device=device)
        )
    stages.done("weights")
    preparation, lengths, length_note = prepare(info.max_sequence_length)
    model = PairModel(name, preparation, runner, head, gives_types=gives_types, device=device, threads=context.threads)
    operations = _warm_up(model, head, context)
    stages.done("warm")
    notes = {
        "tokenizer": tokenizer.note,
        "template": template_note,
        "activation": recipe.note,
        "max_sequence_length": length_note,
    }
    model.facts = ModelFacts(
        operations=operations,
        takes_labels="required" if "extract" in operations else "no",
        max_sequence_length=lengths.default,
        memory_bytes=info.memory_bytes + head.memory_bytes,
        precision=info.precision,
        notes={**info.notes, **{name: note for name, note in notes.items() if note}, **head.notes},
    )
    return model


def _has_types(card: ModelCard) -> bool:
    """Whether the model distinguishes token types; otherwise a type from its tokenizer may have no embedding."""
    types = card.config.get("type_vocab_size", 2)
    return not isinstance(types, int) or types > 1


def _with_tokens(recipe: PairRecipe, tokenizer: TextTokenizer, context: LoadContext) -> PairRecipe:
    """Find the tokens a language model answers with: the profile's, the files' own, or `yes` and `no`."""
    asked = context.model.profile.loadtime
    true, false = asked.get("true_token"), asked.get("false_token")
    if recipe.source != "vocabulary":
        if true or false:
            raise ModelLoadError("CONFIG", f"{context.model.id} is no language model: leave true_token out.")
        return recipe
    if true is None and false is None:
        if recipe.tokens:
            return recipe
        true, false = (*recipe.answers, None)[:2] if recipe.answers else (MATCH, NO_MATCH)
    words = [word for word in (true or MATCH, false) if word is not None]
    ids = [tokenizer.core.token_to_id(word) for word in words]
    known = tuple(number for number in ids if number is not None)
    if len(known) < len(ids):
        raise ModelLoadError(
            "CONFIG",
            f"The vocabulary of {context.model.id} does not hold {words[ids.index(None)]!r}: name the tokens it "
            "answers with, `true_token` and perhaps `false_token`, in the profile's loadtime options.",
        )
    return replace(recipe, tokens=known)


def _template(recipe: PairRecipe, card: ModelCard, tokenizer: TextTokenizer) -> tuple[PairTemplate | None, str | None]:
    """Choose the text form of a pair, unless a request has a template: as the files say, or as published."""
    if recipe.message_format is not None:
        arguments = dict(recipe.chat_arguments)
        return chat_template(tokenizer, recipe.message_format, arguments), "the tokenizer's chat template"
    if recipe.source != "vocabulary" or card.modules:
        return None, None
    if all(role in str(tokenizer.chat_template) for role in ("query", "document")):
        return chat_template(tokenizer, "auto"), "the tokenizer's chat template"
    if card.model_type == "qwen3":
        note = "Qwen3-Reranker's, as its files name none; `template` in the profile's runtime options sets another"
        return format_template(QWEN3_RERANKER, QWEN3_INSTRUCTION), note
    return None, "none: the two texts follow one another; `template` in the profile's runtime options sets one"


def _lengths(
    context: LoadContext,
    card: ModelCard,
    recipe: PairRecipe,
    tokenizer: TextTokenizer,
    frame: PairFrame,
    most: int | None,
) -> tuple[Lengths, str | None]:
    lengths, note = sequence_lengths(context.model.config, card, recipe.transformer, tokenizer, most)
    least = frame.framing + 2
    if lengths.default is not None and lengths.default < least:
        raise ModelLoadError(
            "CONFIG", f"The model's length is {lengths.default} tokens, and a pair needs {least} at least."
        )
    return replace(lengths, least=least), note


def _warm_up(model: PairModel, head: PairHead, context: LoadContext) -> tuple[Operation, ...]:
    """Run one pair through the whole model, as the profile asks; return the model's operations.

    Raises:
        ModelLoadError: `CONFIG`: the profile's options cannot be served; names the option.
    """
    options = profile_options(context)
    tasks = [Task("score", query=Item(text="warm"), options=options)]
    if head.labels.entailment is not None:
        tasks.append(Task("extract", labels=("warm",), options=options))
    for task in tasks:
        run_once(model, context, task)
    return tuple(task.operation for task in tasks)

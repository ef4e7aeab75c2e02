"""Loads a model that reads two texts at once: layout, tokenizer, runner, head, and a warm-up with one pair."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from sie_core.contracts import (
    InvalidInput,
    Item,
    LoadContext,
    ModelCard,
    ModelFacts,
    ModelLoadError,
    Operation,
    Task,
    device_errors,
)
from sie_pytorch.facts import needed_card, sequence_lengths
from sie_pytorch.preparation import Lengths
from sie_pytorch.prompts import Prompts
from sie_pytorch.recipe import NotUnderstoodError, Recipe
from sie_pytorch.running import runner_for
from sie_pytorch.scoring.heads import load_head
from sie_pytorch.scoring.labels import Labels
from sie_pytorch.scoring.layout import ScoreLayout, read_layout
from sie_pytorch.scoring.pairs import PairFrame
from sie_pytorch.scoring.preparation import PairPreparation
from sie_pytorch.scoring.templates import (
    QWEN3_INSTRUCTION,
    QWEN3_RERANKER,
    PairTemplate,
    chat_template,
    format_template,
)
from sie_pytorch.stages import Stages, disable_progress_bars
from sie_pytorch.tokenizer import TextTokenizer, read_tokenizer, text_tokenizer
from sie_pytorch.warming import profile_options
from sie_pytorch.weights import require_weights

if TYPE_CHECKING:
    from sie_pytorch.scoring.adapter import PairModel

MATCH, NO_MATCH = "yes", "no"
"""The tokens a language model answers with where nobody names others, as sentence-transformers has it."""


def load_pairs(family: type[PairModel], context: LoadContext) -> PairModel:
    """Load a model of the family `pytorch-pairs`.

    Raises:
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
    """
    try:
        return _load(family, context)
    except NotUnderstoodError as reason:
        why = str(reason).rstrip(".")
        raise ModelLoadError("CONFIG", f"{context.model.id} is not served as a model of pairs: {why}.") from reason


def _load(family: type[PairModel], context: LoadContext) -> PairModel:
    card, config, name = needed_card(context), context.model.config, context.model.id
    require_weights(card)
    layout, prompts, stages = read_layout(card), Prompts.of(card), Stages(context)
    if layout.single_texts and not context.model.profile.runtime.get("score_label"):
        raise NotUnderstoodError(
            f"{layout.reason}, and no family here does that yet; if it was trained to rank pairs, name the label that "
            "is the score as `score_label` in the profile's runtime options"
        )
    disable_progress_bars()
    reader = read_tokenizer(card, layout.transformer, trust_remote_code=config.trust_remote_code)
    tokenizer = text_tokenizer(reader, card, layout.transformer)
    frame = PairFrame.of(tokenizer.core)
    layout = _with_tokens(layout, tokenizer, context)
    template, template_note = _template(layout, card, reader)
    stages.done("tokenizer")
    runner = runner_for(context, card)
    device = torch.device(str(context.device))
    with device_errors():
        head = load_head(layout, card.path, runner.info.hidden_size, device)
    stages.done("weights")
    lengths, length_note = _lengths(context, card, layout, tokenizer, frame, runner.info.max_sequence_length)
    labels = Labels.of(card, head.labels, layout.activation)
    model = family(
        name,
        PairPreparation(name, tokenizer, frame, prompts, lengths, layout.truncation, template),
        runner,
        head,
        labels,
        takes_types=tokenizer.takes_types and _has_types(card),
        device=device,
        threads=context.threads,
    )
    operations = _warm_up(model, labels, context)
    stages.done("warm")
    notes = {
        "labels": None if len(labels.names) == 1 else ", ".join(labels.names),
        "template": template_note,
        "activation": layout.note,
        "max_sequence_length": length_note,
    }
    model.facts = ModelFacts(
        operations=operations,
        takes_labels="required" if "extract" in operations else "no",
        max_sequence_length=lengths.default,
        memory_bytes=runner.info.memory_bytes + head.memory_bytes,
        precision=runner.info.precision,
        notes={**runner.info.notes, **{name: note for name, note in notes.items() if note}},
    )
    return model


def _has_types(card: ModelCard) -> bool:
    """Whether the model tells token types apart; where it does not, a type of its tokenizer's may have no embedding."""
    types = card.config.get("type_vocab_size", 2)
    return not isinstance(types, int) or types > 1


def _with_tokens(layout: ScoreLayout, tokenizer: TextTokenizer, context: LoadContext) -> ScoreLayout:
    """Find the tokens a language model answers with: the profile's, the files' own, or `yes` and `no`."""
    asked = context.model.profile.loadtime
    true, false = asked.get("true_token"), asked.get("false_token")
    if layout.source != "vocabulary":
        if true or false:
            raise ModelLoadError("CONFIG", f"{context.model.id} is no language model: leave true_token out.")
        return layout
    if true is None and false is None:
        if layout.tokens:
            return layout
        true, false = MATCH, NO_MATCH
    words = [word for word in (true or MATCH, false) if word is not None]
    ids = [tokenizer.core.token_to_id(word) for word in words]
    known = tuple(number for number in ids if number is not None)
    if len(known) < len(ids):
        raise ModelLoadError(
            "CONFIG",
            f"The vocabulary of {context.model.id} does not hold {words[ids.index(None)]!r}: name the tokens it "
            "answers with, `true_token` and perhaps `false_token`, in the profile's loadtime options.",
        )
    return replace(layout, tokens=known)


def _template(layout: ScoreLayout, card: ModelCard, reader: Any) -> tuple[PairTemplate | None, str | None]:
    """Choose how a pair is written out where a request has no template: as the files say, or as published."""
    if layout.message_format is not None:
        return chat_template(reader, layout.message_format), "the tokenizer's chat template"
    if layout.source != "vocabulary" or card.modules:
        return None, None
    if all(role in str(reader.chat_template) for role in ("query", "document")):
        return chat_template(reader, "auto"), "the tokenizer's chat template"
    if card.model_type == "qwen3":
        note = "Qwen3-Reranker's, as its files name none; `template` in the profile's runtime options sets another"
        return format_template(QWEN3_RERANKER, QWEN3_INSTRUCTION), note
    return None, "none: the two texts follow one another; `template` in the profile's runtime options sets one"


def _lengths(
    context: LoadContext,
    card: ModelCard,
    layout: ScoreLayout,
    tokenizer: TextTokenizer,
    frame: PairFrame,
    most: int | None,
) -> tuple[Lengths, str | None]:
    recipe = Recipe(transformer=layout.transformer)
    lengths, note = sequence_lengths(context.model.config, card, recipe, tokenizer, most)
    least = frame.framing + 2
    if lengths.default is not None and lengths.default < least:
        raise ModelLoadError(
            "CONFIG", f"The model's length is {lengths.default} tokens, and a pair needs {least} at least."
        )
    return replace(lengths, least=least), note


def _warm_up(model: PairModel, labels: Labels, context: LoadContext) -> tuple[Operation, ...]:
    """Run one pair through everything, as the profile asks for it; return what the model does.

    Raises:
        ModelLoadError: `CONFIG`: the profile's options cannot be served; names the option.
    """
    options, item = profile_options(context), Item(text="warm")
    tasks = [Task("score", query=Item(text="warm"), options=options)]
    if labels.entailment is not None:
        tasks.append(Task("extract", labels=("warm",), options=options))
    for task in tasks:
        try:
            units = model.prepare([item], task)
        except InvalidInput as error:
            problem = error.message.replace("options.", "runtime.", 1)
            raise ModelLoadError("CONFIG", f"Profile {context.model.profile.name!r}: {problem}") from None
        model.combine(units, model.finish(units, model.run(units)))
    return tuple(task.operation for task in tasks)

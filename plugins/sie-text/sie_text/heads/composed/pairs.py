"""All of a model of pairs but its forward pass and its head: tokenizer, template, lengths, units, facts in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from sie_core.contracts import (
    Adapter,
    Item,
    ItemOutput,
    LoadContext,
    ModelCard,
    ModelFacts,
    ModelLoadError,
    Operation,
    Task,
    Unit,
)
from sie_text.heads.composed.adapter import HeadAdapter
from sie_text.heads.logits.pairs import LabelChoice, PairHead
from sie_text.lengths import Lengths, sequence_lengths
from sie_text.loading import (
    PROBE_TEXTS,
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
from sie_text.sequences import TokenSequence
from sie_text.tokenizer import TextTokenizer, load_tokenizer

MATCH, NO_MATCH = "yes", "no"
"""Answer tokens of a language model if the files name none, as in sentence-transformers."""


class PairUnits(HeadAdapter):
    """Prepares pairs and combines their outputs. A family sets the attributes, and adds the forward pass."""

    _model: str
    """The model's id, for messages."""
    _pairs: PairPreparation
    _head: PairHead

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; one unit a document, or one a text and label, its cost the tokens of the pair.

        Raises:
            InvalidInput: An item, the query or an option is wrong.
        """
        key = self._chosen(task, [self._head.output])
        if task.operation == "score":
            choice = self._head.labels.choose(task, self._model)
            for index, sequence in enumerate(self._pairs.score_sequences(items, task)):
                yield replace(sequence, finish_options=choice).unit(index, key)
            return
        multi_label = bool(task.options.get("multi_label", False))
        choices = [LabelChoice(label, len(task.labels) == 1, multi_label) for label in task.labels]
        for index, sequences in enumerate(self._pairs.label_sequences(items, task)):
            for asked, sequence in zip(choices, sequences, strict=True):
                yield replace(sequence, finish_options=asked).unit(index, key)

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Classify a text by the logits of its labels."""
        if len(outputs) == 1:
            return super().combine(units, outputs)
        logits = np.stack([output.dense for output in outputs if output.dense is not None])
        return self._head.classified([unit.payload.finish_options for unit in units], logits)


class PairParts:
    """The parts of a model of pairs."""

    def __init__(self, context: LoadContext) -> None:
        """Read the files, and load the tokenizer.

        Raises:
            ModelLoadError: `CONFIG`: the profile asks for tokens that are not there, or there is no tokenizer.
            NotUnderstoodError: The files are not those of a model of pairs.
        """
        self._context = context
        self.card = card = needed_card(context)
        require_weights(card)
        recipe = read_pair_recipe(card)
        self._prompts = Prompts.of(card)
        if recipe.single_texts and not context.model.profile.runtime.get("score_label"):
            raise NotUnderstoodError(
                f"{recipe.reason}, as families that classify do; if it was trained to rank pairs, name the label that "
                "is the score as `score_label` in the profile's runtime options"
            )
        trusted = context.model.config.trust_remote_code
        self.tokenizer = load_tokenizer(card, recipe.transformer, trust_remote_code=trusted)
        self._frame = PairFrame.of(self.tokenizer.core)
        self.recipe = _with_tokens(recipe, self.tokenizer, context)
        self._template, self._template_note = _template(self.recipe, card, self.tokenizer)
        self.gives_types = self.tokenizer.takes_types and _has_types(card)
        """Whether token types go with the tokens."""
        self._lengths: Lengths | None = None
        self._length_note: str | None = None

    @property
    def auto_classes(self) -> tuple[str, ...]:
        """The class of transformers whose head gives the logits."""
        known = {
            "classifier": ("AutoModelForSequenceClassification",),
            "vocabulary": ("AutoModelForCausalLM",),
        }
        return known.get(self.recipe.source, ())

    def preparation(self, limit: int | None) -> PairPreparation:
        """Make the preparation of pairs, given the tokens that the model's positions allow; None for no limit.

        Raises:
            ModelLoadError: `CONFIG`: the length leaves no room for a pair.
        """
        config, recipe = self._context.model.config, self.recipe
        lengths, self._length_note = sequence_lengths(config, self.card, recipe.transformer, self.tokenizer, limit)
        least = self._frame.framing + 2
        if lengths.default is not None and lengths.default < least:
            raise ModelLoadError(
                "CONFIG", f"The model's length is {lengths.default} tokens, and a pair needs {least} at least."
            )
        self._lengths = replace(lengths, least=least)
        return PairPreparation(
            self._context.model.id,
            self.tokenizer,
            self._frame,
            self._prompts,
            self._lengths,
            recipe.truncation,
            self._template,
        )

    @property
    def probe_task(self) -> Task:
        """Scores texts by the first of `PROBE_TEXTS`, as the profile asks."""
        return Task("score", query=Item(text=PROBE_TEXTS[0]), options=profile_options(self._context))

    def probes(self, items: Sequence[Item], limit: int | None) -> Iterator[TokenSequence]:
        """Make pairs of the first of `PROBE_TEXTS` and each of `items`."""
        return iter(self.preparation(limit).score_sequences(items, self.probe_task))

    def facts(
        self, adapter: Adapter, head: PairHead, notes: Mapping[str, str], *, memory_bytes: int, precision: str
    ) -> ModelFacts:
        """Run one pair through the whole model, as the profile asks, and state its facts.

        Call it after `preparation`.

        Raises:
            ModelLoadError: `CONFIG`: the profile's options cannot be served; names the option.
        """
        operations = _warm_up(adapter, head, self._context)
        own = {
            "tokenizer": self.tokenizer.note,
            "template": self._template_note,
            "activation": self.recipe.note,
            "max_sequence_length": self._length_note,
        }
        return ModelFacts(
            operations=operations,
            takes_labels="required" if "extract" in operations else "no",
            max_sequence_length=None if self._lengths is None else self._lengths.default,
            memory_bytes=memory_bytes + head.memory_bytes,
            precision=precision,
            notes={**notes, **{name: note for name, note in own.items() if note}, **head.notes},
        )


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


def _warm_up(model: Adapter, head: PairHead, context: LoadContext) -> tuple[Operation, ...]:
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

"""All that a load of an encoder reads but its forward pass: tokenizer, prompts, lengths, and the facts in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from sie_core.contracts import Adapter, LoadContext, ModelFacts, Operation, OutputType, Task
from sie_text.encode import Expansion, TextPreparation
from sie_text.heads.composed.adapter import EXTRACTED
from sie_text.heads.protocol import Head
from sie_text.lengths import sequence_lengths
from sie_text.loading import (
    matryoshka_dims,
    missing_outputs,
    needed_card,
    profile_options,
    run_once,
    similarities,
    warm_up,
)
from sie_text.prompts import Prompts
from sie_text.recipe import NotUnderstoodError, Recipe
from sie_text.tokenizer import load_tokenizer


class TextParts:
    """The parts of an encoder of single texts."""

    def __init__(self, context: LoadContext, recipe: Recipe) -> None:
        """Load the tokenizer of `context.card`.

        Raises:
            ModelLoadError: `CONFIG`: the default prompt is not among the prompts, or there is no tokenizer.
            NotUnderstoodError: Texts go through its chat template, and the recipe is not declared.
        """
        self._context, self._recipe = context, recipe
        self.card = needed_card(context)
        self.prompts = Prompts.of(self.card, dict(recipe.prompts))
        self.tokenizer = load_tokenizer(
            self.card,
            recipe.transformer,
            trust_remote_code=context.model.config.trust_remote_code,
            markers=() if recipe.multivector is None else recipe.multivector.markers,
        )
        if not recipe.declared and self.tokenizer.chat_template is not None:
            raise NotUnderstoodError("texts go through its chat template")
        asked = None if recipe.multivector is None else recipe.multivector.expansion
        self._asked_expansion = asked
        self.expansion: Expansion | None = None
        """Expansion of short queries; None for none."""
        if asked is not None:
            self.expansion = Expansion(asked.length, self.tokenizer.expansion_token(asked.token), asked.attended)
        self._length: int | None = None
        self._length_note: str | None = None

    @property
    def length(self) -> int | None:
        """Tokens that a text is cut to unless a request says otherwise; None for no limit, or before `preparation`."""
        return self._length

    def preparation(self, limit: int | None) -> TextPreparation:
        """Make the preparation of texts, given the tokens that the model's positions allow; None for no limit.

        Raises:
            ModelLoadError: `CONFIG`: the length leaves no room for a text.
        """
        config, recipe = self._context.model.config, self._recipe
        lengths, self._length_note = sequence_lengths(
            config, self.card, recipe.transformer, self.tokenizer, limit, self._asked_expansion
        )
        self._length = lengths.default
        return TextPreparation(
            self._context.model.id,
            self.tokenizer,
            self.prompts,
            lengths,
            pools_prompt=recipe.pooling is None or recipe.pooling.include_prompt,
            takes_ids=config.accept_token_ids,
            expansion=self.expansion,
        )

    def facts(
        self,
        adapter: Adapter,
        heads: Sequence[Head],
        notes: Mapping[str, str],
        *,
        memory_bytes: int = 0,
        precision: str = "float32",
        takes_lora: bool = False,
    ) -> ModelFacts:
        """Run one text through every head, as the profile asks, and state the facts of the whole.

        Call it after `preparation`.

        Args:
            adapter: The model.
            heads: Its heads.
            notes: Those of the forward pass, such as `runner`.
            memory_bytes: Bytes of the weights of the forward pass.
            precision: That of the forward pass.
            takes_lora: Whether it applies LoRA adapters.

        Raises:
            ModelLoadError: `CONFIG`: the profile's options cannot be served; names the option.
        """
        context, made = self._context, [head.output for head in heads]
        config = context.model.config
        outputs = tuple(kind for kind in get_args(OutputType) if kind in made)
        operations: list[Operation] = []
        dims: dict[OutputType, int] = {}
        if outputs:
            dims = warm_up(adapter, context, outputs)
            operations.append("encode")
        if set(EXTRACTED) <= set(made):
            run_once(adapter, context, Task("extract", options=profile_options(context)))
            operations.append("extract")
        own = {
            "tokenizer": self.tokenizer.note,
            "prompts": self.prompts.note,
            "max_sequence_length": self._length_note,
            "outputs": missing_outputs(config, outputs),
            **dict(self._recipe.notes),
        }
        told = (notes, {name: note for name, note in own.items() if note}, *(head.notes for head in heads))
        return ModelFacts(
            outputs,
            tuple(operations),
            dims=dims,
            similarity=similarities(context, *outputs),
            matryoshka_dims=matryoshka_dims(config, self.card, dims["dense"]) if "dense" in dims else (),
            classes=tuple(name for head in heads for name in head.classes),
            max_sequence_length=self._length,
            memory_bytes=memory_bytes + sum(head.memory_bytes for head in heads),
            precision=precision,
            takes_lora=takes_lora,
            notes={name: note for notes in told for name, note in notes.items()},
        )

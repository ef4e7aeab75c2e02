"""The family `cpu`: text encoders, and the classifiers of single texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from sie_text.encode import TextPreparation
from sie_text.heads import (
    Head,
    HeadContext,
    TextParts,
    build_classification_head,
    build_heads,
)
from sie_text.loading import PROBE_TEXTS, Stages, declared_outputs, needed_card, profile_options, require_weights
from sie_text.recipe import (
    Recipe,
    SpladeSettings,
    is_sparse_router,
    read_pair_recipe,
    read_recipe,
    read_routes,
)
from sie_text.static import LookupEncoder, RoutedEncoder

from sie_core.contracts import Adapter, FamilyUnfitError, Item, LoadContext, Task, Unit
from sie_cpu.families.claims import FEATURES
from sie_cpu.families.model import CpuModel, notes_of_code, served
from sie_cpu.forward.running import CpuRunner, Judge, build_runner


class CpuEncoder(CpuModel):
    """An encoder of single texts: `encode` asks for vectors, `extract` for classifications."""

    def __init__(self, preparation: TextPreparation, heads: Iterable[Head], runner: CpuRunner) -> None:
        super().__init__(runner, heads)
        self._preparation = preparation
        self.tokenizer = preparation.tokenizer
        self.prompts = preparation.prompts

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; one unit an item, its cost its tokens.

        Raises:
            InvalidInput: An item or an option is wrong.
        """
        return self._text_units(self._preparation, items, task)


def load(context: LoadContext) -> Adapter:
    """Load a text encoder.

    Raises:
        FamilyUnfitError: Its files ask for something that the kernels do not do.
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The machine has no room.
    """
    return served(context, _load_routes if is_sparse_router(needed_card(context)) else _load_encoder)


def load_classifier(context: LoadContext) -> Adapter:
    """Load a classifier of single texts.

    Raises:
        FamilyUnfitError: Its profile names the label that is the score of a pair, or the kernels do not run it.
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The machine has no room.
    """
    if context.model.profile.runtime.get("score_label"):
        raise FamilyUnfitError(f"The profile of {context.model.id} names a `score_label`, so it ranks pairs of texts.")

    def make(given: LoadContext) -> Adapter:
        recipe = Recipe(read_pair_recipe(needed_card(given)).transformer, pooling=None)
        heads = [build_classification_head]
        return compose(given, recipe, lambda each: [make(each) for make in heads], "AutoModelForSequenceClassification")

    return served(context, make)


def _load_routes(context: LoadContext) -> Adapter:
    routes = read_routes(needed_card(context))
    lookup = LookupEncoder.read(context, routes.lookup)
    if routes.encoder is None:
        return lookup
    encoder = _load_encoder(replace(context, weights=routes.encoder.path, card=routes.encoder))
    return RoutedEncoder(lookup, encoder, routes.looked_up, routes.default)


def _load_encoder(context: LoadContext) -> Adapter:
    config = context.model.config
    recipe = read_recipe(needed_card(context), declared_outputs(config), config.pickles)
    masked = ("AutoModelForMaskedLM",) if isinstance(recipe.sparse, SpladeSettings) else ()
    return compose(context, recipe, lambda given: build_heads(recipe, given), *masked)


def compose(
    context: LoadContext, recipe: Recipe, make: Callable[[HeadContext], Sequence[Head]], *auto_classes: str
) -> CpuEncoder:
    """Load tokenizer, forward pass and heads of a model of single texts.

    Args:
        context: The model to load.
        recipe: What its files say.
        make: Makes its heads.
        auto_classes: transformers' names of the classes that they are parts of.

    Raises:
        NotUnderstoodError: Its files ask for something that is not done here.
    """
    card, stages = needed_card(context), Stages(context)
    require_weights(card)
    notes = notes_of_code(context, card, *auto_classes, dense=recipe.pooling is not None)
    parts = TextParts(context, recipe)
    stages.done("tokenizer")

    def judge(runner: CpuRunner) -> Judge:
        task = Task("extract", options=profile_options(context))
        (head,) = make(HeadContext(card, parts.tokenizer, runner.hidden_size))
        texts = [Item(text=text) for text in PROBE_TEXTS[1:]]
        return Judge(head, parts.preparation(runner.limit).sequences(texts, task), task)

    runner = build_runner(
        context,
        card,
        FEATURES,
        expands_queries=parts.expansion is not None and not parts.expansion.attended,
        judge=None if recipe.pooling or recipe.sparse or recipe.multivector else judge,
    )
    heads = list(make(HeadContext(card, parts.tokenizer, runner.hidden_size)))
    stages.done("weights")
    encoder = CpuEncoder(parts.preparation(runner.limit), heads, runner)
    encoder.facts = parts.facts(
        encoder,
        heads,
        {**runner.notes, **notes},
        memory_bytes=runner.memory_bytes,
        precision=runner.precision,
        takes_lora=True,
    )
    stages.done("warm")
    return encoder

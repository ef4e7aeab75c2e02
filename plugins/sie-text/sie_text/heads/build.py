"""Turns a checkpoint's files into heads in NumPy: every kind of head that a recipe asks for."""

from __future__ import annotations

from sie_core.contracts import ModelCard, ModelLoadError
from sie_text.entities import TagSet
from sie_text.heads.layouts import (
    CLASSIFIERS,
    MASKED_LANGUAGE,
    TOKEN_CLASSIFIERS,
    VOCABULARY,
    class_before,
    find_layout,
    read_layers,
)
from sie_text.heads.logits.classification import ClassificationHead, default_activation
from sie_text.heads.logits.classifier import Classifier, Odds, PooledClassifier
from sie_text.heads.logits.entities import EntityHead
from sie_text.heads.logits.pairs import PairHead
from sie_text.heads.protocol import Head, HeadContext
from sie_text.heads.sparse.splade import SpladeHead
from sie_text.heads.sparse.token_weights import TokenWeightHead
from sie_text.heads.vectors.dense import DenseHead
from sie_text.heads.vectors.layers import Linear
from sie_text.heads.vectors.multivector import MultivectorHead, skipped_ids
from sie_text.heads.vectors.steps import Steps, load_projection
from sie_text.heads.weights import read_first
from sie_text.labels import Labels
from sie_text.recipe import (
    MODES,
    NotUnderstoodError,
    PairRecipe,
    PoolingSettings,
    Recipe,
    SpladeSettings,
    TokenWeightSettings,
)


def build_heads(recipe: Recipe, context: HeadContext) -> list[Head]:
    """Load the heads of a text encoder, one a kind of vector.

    Args:
        recipe: The files' recipe.
        context: What they stand on.

    Raises:
        ModelLoadError: `CORRUPT`: weights are missing or do not fit; `CONFIG`: sizes do not follow one another.
        NotUnderstoodError: The vocabulary's layer is of a class that is not listed in `MASKED_LANGUAGE`.
    """
    size, heads = context.hidden_size, list[Head]()
    if recipe.pooling is not None:
        steps = Steps.read(recipe.head, len(recipe.pooling.modes) * size, recipe.truncate_dim)
        heads.append(DenseHead(recipe.pooling, steps, size))
    if isinstance(recipe.sparse, SpladeSettings):
        layout = find_layout(context.card, MASKED_LANGUAGE, "ForMaskedLM")
        heads.append(SpladeHead(recipe.sparse, Steps(read_layers(context.card, layout), size)))
    if isinstance(recipe.sparse, TokenWeightSettings):
        heads.append(TokenWeightHead(recipe.sparse, load_projection(recipe.sparse.projection), context))
    if recipe.multivector is not None:
        steps = Steps.read(recipe.multivector.steps, size)
        heads.append(MultivectorHead(recipe.multivector, skipped_ids(recipe.multivector, context), steps))
    return heads


def build_classification_head(context: HeadContext) -> ClassificationHead:
    """Load the head of a sequence classifier, of one of the classes in `CLASSIFIERS`.

    Raises:
        ModelLoadError: `CORRUPT`: weights are missing or do not fit.
        NotUnderstoodError: It is of another class.
    """
    classifier = _own_classifier(context)
    names = Labels.of(context.card, classifier.labels, None).names
    return ClassificationHead(classifier, names, default_activation(context.card, len(names)))


def build_entity_head(context: HeadContext, tags: TagSet) -> EntityHead:
    """Load the head of a token classifier, of one of the classes in `TOKEN_CLASSIFIERS`.

    Raises:
        ModelLoadError: `CORRUPT`: weights are missing or do not fit.
        NotUnderstoodError: It is of another class, or has another number of labels than its config names.
    """
    layout = find_layout(context.card, TOKEN_CLASSIFIERS, "ForTokenClassification")
    logits = Steps(read_layers(context.card, layout), context.hidden_size)
    if logits.dims != len(tags.labels):
        raise NotUnderstoodError(f"it names {len(tags.labels)} labels, and its class has {logits.dims}")
    return EntityHead(logits, tags)


def build_pair_head(recipe: PairRecipe, context: HeadContext) -> PairHead:
    """Load the head of a model of pairs: a classifier, modules, or rows of a language model's vocabulary.

    Raises:
        ModelLoadError: `CORRUPT`: weights are missing or do not fit. `CONFIG`: a token is not in the vocabulary.
        NotUnderstoodError: It is of a class that is not listed in `sie_text.heads.layouts`.
    """
    classifier = _pair_classifier(recipe, context)
    return PairHead(classifier, Labels.of(context.card, classifier.labels, recipe.activation))


def _pair_classifier(recipe: PairRecipe, context: HeadContext) -> Classifier:
    if recipe.source == "classifier":
        return _own_classifier(context)
    if recipe.source == "vocabulary":
        rows = Steps([_rows(context.card, recipe.tokens)], context.hidden_size)
        return Odds(PooledClassifier(PoolingSettings(("lasttoken",)), rows))
    assert recipe.pooling is not None
    steps = Steps.read(recipe.steps, len(recipe.pooling.modes) * context.hidden_size)
    return PooledClassifier(recipe.pooling, steps)


def _own_classifier(context: HeadContext) -> Classifier:
    card = context.card
    layout = find_layout(card, CLASSIFIERS, "ForSequenceClassification")
    padding = card.config.get("pad_token_id") if layout.skips_padding else None
    mode = card.config.get("classifier_pooling", layout.pooling)
    if mode not in MODES:
        raise NotUnderstoodError(f"config.json pools by {mode!r} (classifier_pooling)")
    return PooledClassifier(PoolingSettings((mode,)), Steps(read_layers(card, layout), context.hidden_size), padding)


def _rows(card: ModelCard, tokens: tuple[int, ...]) -> Linear:
    """Read the rows of a language model's vocabulary for the logits of `tokens`."""
    if class_before(card, "ForCausalLM") not in VOCABULARY:
        known = ", ".join(sorted(VOCABULARY))
        raise NotUnderstoodError(
            f"it was saved from {', '.join(card.architectures) or 'no class'}, and without PyTorch the logits of "
            f"{known} are read (ForCausalLM)"
        )
    weight = read_first(card.path, ("lm_head.weight", "embed_tokens.weight"), tokens)
    if weight is None:
        raise ModelLoadError("CORRUPT", "No safetensors file holds lm_head.weight.")
    return Linear(weight)

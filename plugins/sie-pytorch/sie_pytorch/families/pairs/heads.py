"""Loads the source of a pair's logits by its recipe."""

from __future__ import annotations

from sie_text.heads import Classifier, Odds, PairHead
from sie_text.labels import Labels
from sie_text.recipe import PairRecipe

from sie_pytorch.heads import HeadContext, PooledClassifier, Steps
from sie_pytorch.heads.own_class.loading import load_classifier, load_vocabulary_rows


def load_head(recipe: PairRecipe, context: HeadContext) -> PairHead:
    """Load the head of a recipe.

    Raises:
        ModelLoadError: Weights of the head are missing or do not fit.
        NotUnderstoodError: The class of the checkpoint does something that no head does.
    """
    classifier = _load_classifier(recipe, context)
    return PairHead(classifier, Labels.of(context.card, classifier.labels, recipe.activation))


def _load_classifier(recipe: PairRecipe, context: HeadContext) -> Classifier:
    folder, device = context.card.path, context.device
    if recipe.source == "classifier":
        return load_classifier(folder, context.card.records).to(device)
    if recipe.source == "vocabulary":
        return Odds(load_vocabulary_rows(folder, recipe.tokens, context.card.records).to(device))
    assert recipe.pooling is not None
    steps = Steps.load(recipe.steps, len(recipe.pooling.modes) * context.hidden_size, device)
    return PooledClassifier(recipe.pooling, steps)

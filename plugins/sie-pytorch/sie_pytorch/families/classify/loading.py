"""Loads a classifier of single texts: the checkpoint's own class on the states of a runner."""

from __future__ import annotations

from sie_text.heads import default_activation
from sie_text.labels import Labels
from sie_text.loading import needed_card
from sie_text.recipe import NotUnderstoodError, Recipe, read_pair_recipe

from sie_core.contracts import Adapter, FamilyUnfitError, LoadContext
from sie_pytorch.heads import ClassificationHead, Head, HeadContext, compose
from sie_pytorch.heads.composed.compose import unfit


def load(context: LoadContext) -> Adapter:
    """Load a model of the family `pytorch-classify`.

    Raises:
        FamilyUnfitError: Its profile names the label that is the score of a pair, or its class is none of ours.
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
    """
    if context.model.profile.runtime.get("score_label"):
        raise FamilyUnfitError(f"The profile of {context.model.id} names a `score_label`, so it ranks pairs of texts.")
    try:
        recipe = read_pair_recipe(needed_card(context))
    except NotUnderstoodError as reason:
        raise unfit(context, reason) from reason
    classifier, auto = Recipe(recipe.transformer, pooling=None), ["AutoModelForSequenceClassification"]
    return compose(context, classifier, [_own_head], auto_classes=auto, judged=_own_head)


def _own_head(context: HeadContext) -> Head:
    # Imports transformers' classes.
    from sie_pytorch.heads.own_class.loading import load_classifier

    classifier = load_classifier(context.card.path, context.card.records).to(context.device)
    names = Labels.of(context.card, classifier.labels, None).names
    return ClassificationHead(classifier, names, default_activation(context.card, len(names)))

"""Finds the inputs of a model's load: its weights, their card, and the family that serves it."""

from __future__ import annotations

from dataclasses import dataclass

from sie_core.cache import HeldWeights, WeightChain, hold_weights
from sie_core.catalog.cards import read_card
from sie_core.catalog.families import FamilyChoice, choose_family
from sie_core.catalog.options.options import check_profile
from sie_core.contracts import Device, ModelCard, ModelFamily, ModelLoadError, ResolvedModel, WeightRequest
from sie_core.contracts.model.weights import SAFETENSORS, TOKENIZERS, Progress, holds_weights
from sie_core.plugins import PluginSet


@dataclass(frozen=True, slots=True)
class FetchedModel:
    """A model whose weights were found, and the family that serves it."""

    resolved: ResolvedModel
    # None for a weightless model, as is its card.
    weights: HeldWeights | None
    card: ModelCard | None
    choice: FamilyChoice
    # Options of its profile that its family has not.
    ignored: tuple[str, ...]


def fetch_model(
    resolved: ResolvedModel, chain: WeightChain, plugins: PluginSet, device: Device, progress: Progress | None = None
) -> FetchedModel:
    """Find a model's weights, downloading them if needed, and choose its family.

    Args:
        resolved: The model.
        chain: Source of the weights.
        plugins: Their families may serve the model.
        device: Device of the load.
        progress: Called with the progress of a download.

    Raises:
        ModelLoadError: With the failure's class.
    """
    wanted = asked_weights(resolved, plugins)
    weights = hold_weights(resolved.config, chain, progress, wanted)
    card = None if weights is None else read_card(weights.folder)
    choice = choose_family(plugins, resolved, card, device)
    if weights is not None and card is not None and _lacks(card, choice.family, wanted):
        weights.release()
        weights = hold_weights(resolved.config, chain, progress, choice.family.weights)
        card = None if weights is None else read_card(weights.folder)
    if weights is not None and card is not None:
        hold_companions(weights, card, resolved, choice.family, chain)
    return FetchedModel(
        resolved,
        weights,
        card,
        choice,
        check_profile(choice.family, resolved.profile, plugins.postprocessors, resolved.config, plugins.option_names()),
    )


def hold_companions(
    weights: HeldWeights, card: ModelCard, resolved: ResolvedModel, family: ModelFamily, chain: WeightChain
) -> None:
    """Find the repositories whose small files the model needs beside its weights, and hold them with these.

    Raises:
        ModelLoadError: As `WeightChain.hold`, naming the model; the weights are released.
    """
    for request in companions_of(card, resolved, family):
        try:
            weights.tokenizers[request.repo_id] = chain.hold(request)
        except ModelLoadError as error:
            weights.release()
            raise ModelLoadError(
                error.failure,
                f"{resolved.id} needs the tokenizer and the config of {request.repo_id}, and they are not beside its "
                f"weights. {error}",
            ) from error


def companions_of(card: ModelCard, resolved: ResolvedModel, family: ModelFamily) -> list[WeightRequest]:
    """List the repositories whose small files a model needs: those its config states, and those its family names."""
    stated = resolved.config.tokenizers
    named = () if family.companions is None else family.companions(card)
    return [WeightRequest(name, stated.get(name), weights=TOKENIZERS) for name in dict.fromkeys((*stated, *named))]


def asked_weights(resolved: ResolvedModel, plugins: PluginSet) -> tuple[str, ...]:
    """Return the patterns of weight files to request first: those of the family that the config names."""
    named = plugins.families.get(resolved.profile.adapter_path or "")
    return SAFETENSORS if named is None else named.weights


def _lacks(card: ModelCard, family: ModelFamily, wanted: tuple[str, ...]) -> bool:
    """Whether a family reads other files than were requested, and none of them is here."""
    return family.weights not in (wanted, SAFETENSORS) and not any(
        holds_weights(name, family.weights) for name in card.files
    )

"""Chooses the family that serves a model (config, device fit, declared priority, name)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from sie_core.catalog.wording import did_you_mean
from sie_core.contracts import (
    Claim,
    Device,
    ModelCard,
    ModelFamily,
    ModelLoadError,
    NoClaim,
    ResolvedModel,
)
from sie_core.plugins import PluginSet
from sie_core.plugins.calls import HungError

log = logging.getLogger(__name__)

CLAIM_LIMIT_S = 5.0
"""How long a family may take to read a card, which is in memory; a hanging one is asked again once it returned."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A family that was considered, with the reason it gave."""

    family: str
    reason: str
    priority: int = 0
    serves_device: bool = True


@dataclass(frozen=True, slots=True)
class Refusal:
    """A family that says why it does not claim weights of its kind."""

    family: str
    reason: str


@dataclass(frozen=True, slots=True)
class FamilyChoice:
    """The family that serves, why it won, and every family that claimed the weights, the winner first."""

    family: ModelFamily
    reason: str
    candidates: tuple[Candidate, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    """Families with a reason for not claiming them."""

    @property
    def unfit(self) -> str | None:
        """The statements of the refusing families if a family of last resort (negative priority) serves; else None."""
        last_resort = bool(self.candidates) and self.candidates[0].priority < 0
        return (said_of(self.refusals) or None) if last_resort else None


def choose_family(plugins: PluginSet, resolved: ResolvedModel, card: ModelCard | None, device: Device) -> FamilyChoice:
    """Choose the family of `resolved` on `device`; `card` is None if the model has no weights.

    An `adapter_path` that names a registered family decides. One that names a class of a package
    (`package.module:Class`) was written for another server and is only a hint: the weights decide.

    Raises:
        ModelLoadError: `CONFIG` if the config asks for something impossible, `DEPENDENCY` if no installed family serves
            the model. The message says what to install, and names broken plugins with their cause.
    """
    wanted = resolved.profile.adapter_path
    if wanted is not None and not is_class_path(wanted):
        return _named(plugins, resolved, wanted, card, device)
    hint = f"; the config's adapter_path {wanted} names another server's class and is only a hint" if wanted else ""
    if card is None:
        raise ModelLoadError(
            "CONFIG",
            f"{resolved.id} has no weights, so its config must name the family that serves it: set "
            f"`adapter_path` to one of {_known(plugins)}{hint}.",
        )
    candidates, refusals = _candidates(plugins, card, device)
    if not candidates or not candidates[0].serves_device:
        raise _nobody(plugins, resolved, card, device, candidates, refusals)
    winner = candidates[0]
    return FamilyChoice(plugins.families[winner.family], _why(candidates) + hint, tuple(candidates), refusals)


def choose_next(plugins: PluginSet, resolved: ResolvedModel, choice: FamilyChoice, unfit: str) -> FamilyChoice:
    """Choose the next claiming family after the chosen one found the weights `unfit`.

    Raises:
        ModelLoadError: `CONFIG`: no other family claims them, or the model's config names the chosen one.
    """
    wanted, family = resolved.profile.adapter_path, choice.family.id
    if wanted is not None and not is_class_path(wanted):
        raise ModelLoadError("CONFIG", f"{unfit} The config names the family {family} (`adapter_path`).")
    others = [each for each in choice.candidates[1:] if each.serves_device]
    if not others:
        raise ModelLoadError("CONFIG", f"{unfit} No other installed family claims it.{_broken(plugins)}")
    reason = f"{others[0].reason}; with higher priority {family} claimed it and found it unfit: {unfit}"
    return FamilyChoice(plugins.families[others[0].family], reason, tuple(others), choice.refusals)


def said_of(refusals: Sequence[Refusal]) -> str:
    """Join the reasons of families that refuse weights of their own kind; empty if there are none."""
    families: dict[str, list[str]] = {}
    for each in refusals:
        families.setdefault(each.reason, []).append(each.family)
    return " ".join(f"{', '.join(names)}: {reason}." for reason, names in families.items())


def is_class_path(adapter_path: str) -> bool:
    """Whether an `adapter_path` names a class of a package and not a family."""
    return ":" in adapter_path or "." in adapter_path


def _named(
    plugins: PluginSet, resolved: ResolvedModel, wanted: str, card: ModelCard | None, device: Device
) -> FamilyChoice:
    family = plugins.families.get(wanted)
    if family is None:
        raise ModelLoadError(
            "DEPENDENCY",
            f"The config of {resolved.id} asks for the family {wanted!r}, which no installed plugin registers."
            f"{did_you_mean(wanted, plugins.families)} Registered: {_known(plugins)}. Install the plugin that "
            f"provides it, or correct `adapter_path`.{_broken(plugins)}",
        )
    if not _serves(family, device):
        raise ModelLoadError(
            "CONFIG",
            f"The config of {resolved.id} asks for the family {wanted!r}, which serves {_devices(family)} and not "
            f"{device.kind}: leave `adapter_path` out to let another family serve it, or set SIE_DEVICE.",
        )
    if card is None and not family.weightless:
        raise ModelLoadError(
            "CONFIG", f"The family {wanted!r} needs weights, and the config of {resolved.id} says there are none."
        )
    reason = f"the model's config names it as adapter_path {wanted}"
    claiming = [] if card is None else _candidates(plugins, card, device)[0]
    others = [each for each in claiming if each.family != wanted]
    return FamilyChoice(family, reason, (Candidate(wanted, reason), *others))


def _candidates(plugins: PluginSet, card: ModelCard, device: Device) -> tuple[list[Candidate], tuple[Refusal, ...]]:
    """List the families that claim `card`, best first, and those with a reason for not claiming it."""
    found, refusals = [], []
    for family in plugins.families.values():
        claim = None if family.weightless else _claim(plugins, family, card)
        if isinstance(claim, NoClaim):
            refusals.append(Refusal(family.id, claim.reason))
        elif claim is not None:
            found.append(Candidate(family.id, claim.reason, claim.priority, _serves(family, device)))
    found.sort(key=lambda each: (not each.serves_device, -each.priority, each.family))
    return found, tuple(refusals)


class ClaimFailed(Exception):
    """A family failed while it read a card; the failure is recorded with its plugin."""


def ask_claim(plugins: PluginSet, family: ModelFamily, card: ModelCard) -> Claim | NoClaim | None:
    """Ask a family whether it serves the weights of a card; it may take `CLAIM_LIMIT_S`.

    Raises:
        ClaimFailed: It raised, hung or returned no claim.
    """
    error: BaseException | None = None
    try:
        claim = plugins.calls.within(
            f"claims-{family.id}", CLAIM_LIMIT_S, lambda: family.claims(plugins.informed(card))
        )
        if (
            claim is None
            or isinstance(claim, NoClaim)
            or (isinstance(claim, Claim) and isinstance(claim.priority, int))
        ):
            return claim
        problem = f"returned a {type(claim).__name__} from `claims`, neither None nor a Claim whose priority is an int"
    except HungError as hung:
        problem = f"{hung} from `claims`"
    except (Exception, SystemExit) as raised:
        problem, error = f"failed to read a model's card ({type(raised).__name__})", raised
    plugins.faulty("sie_model_families", family.id, problem, error)
    raise ClaimFailed(f"the family {family.id} {problem}") from error


def _claim(plugins: PluginSet, family: ModelFamily, card: ModelCard) -> Claim | NoClaim | None:
    """Ask a family for its claim; a family that fails claims nothing, so that it does not stop other families."""
    try:
        return ask_claim(plugins, family, card)
    except ClaimFailed:
        return None


def _serves(family: ModelFamily, device: Device) -> bool:
    return not family.devices or device.kind in family.devices


def _why(candidates: list[Candidate]) -> str:
    winner, others = candidates[0], [each for each in candidates[1:] if each.serves_device]
    if not others:
        return winner.reason
    second = others[0]
    if winner.priority > second.priority:
        return f"{winner.reason}; its priority {winner.priority} is above {second.family}'s {second.priority}"
    return f"{winner.reason}; of equal priority with {second.family}, first by name"


def _nobody(
    plugins: PluginSet,
    resolved: ResolvedModel,
    card: ModelCard,
    device: Device,
    unfit: list[Candidate],
    refusals: tuple[Refusal, ...],
) -> ModelLoadError:
    if unfit:
        names = ", ".join(f"{each.family} ({_devices(plugins.families[each.family])})" for each in unfit)
        problem = f"{resolved.id} is claimed by {names}, and none of them serves this device, {device.kind}."
    else:
        facts = f"model type {card.model_type or 'unknown'}, architectures {', '.join(card.architectures) or 'none'}"
        problem = f"No installed family serves {resolved.id} ({facts})."
    if refusals:
        problem += f" {said_of(refusals)}"
    remedy = f" Install a plugin that does; registered families: {_known(plugins)}."
    return ModelLoadError("DEPENDENCY", problem + remedy + _broken(plugins))


def _known(plugins: PluginSet) -> str:
    return ", ".join(sorted(plugins.families)) or "none"


def _devices(family: ModelFamily) -> str:
    return ", ".join(sorted(family.devices))


def _broken(plugins: PluginSet) -> str:
    causes = plugins.problems()
    return f" Broken plugins: {causes}." if causes else ""

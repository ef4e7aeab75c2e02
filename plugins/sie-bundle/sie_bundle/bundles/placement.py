"""Determines which bundles serve a model: those that name it, whose plugins register its family, or whose families
claim it.

Families decide from the config's statements on the weights' files; neither weights nor a model library is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from sie_bundle.bundles.names import EVERY_MODEL
from sie_bundle.bundles.reading import Bundle
from sie_core.catalog import ClaimFailed, ask_claim, is_class_path, listed_id, profiles_of
from sie_core.contracts import Claim, InferenceError, ModelCard, ModelConfig, ModelFamily, ResolvedModel
from sie_core.plugins import PluginReport, PluginSet

ENGINE = "pytorch"
"""The `engine` of a bundle that published clients see.

They know only `pytorch` and `candle` and ignore bundles of other engines; the adapters of every bundle here are written
in Python.
"""
MOST_CARDS = 20_000
"""Number of descriptions of weights whose claims are cached."""


@dataclass(frozen=True, slots=True)
class BundleView:
    """A bundle as reported by the config service."""

    name: str
    priority: int
    adapters: tuple[str, ...] = ()
    """The modules that load the families its plugins register, in order."""
    engine: str = ENGINE
    source: str = ""


class Placement:
    """Places models in bundles by the plugins installed in this process.

    Args:
        bundles: By priority.
        plugins: The installed plugins. A bundle's plugin that is not installed serves none of its models.
    """

    def __init__(self, bundles: Sequence[Bundle], plugins: PluginSet) -> None:
        self._bundles, self._plugins = bundles, plugins
        self._reports = {
            bundle.name: {name: _reports(name, plugins.reports) for name in bundle.plugins} for bundle in bundles
        }
        self._families = {bundle.name: tuple(dict.fromkeys(self._registered(bundle))) for bundle in bundles}
        self._models = {bundle.name: frozenset(map(listed_id, bundle.models)) for bundle in bundles}
        self._claims: dict[str, frozenset[str]] = {}

    def views(self) -> list[BundleView]:
        """Describe the bundles, by priority."""
        return [
            BundleView(
                bundle.name,
                bundle.priority,
                tuple(sorted({family.load.partition(":")[0] for family in self._families[bundle.name]})),
                source=bundle.source,
            )
            for bundle in self._bundles
        ]

    def bundles_of(self, model: ResolvedModel) -> tuple[str, ...]:
        """Name the bundles that serve a model, the preferred one first; empty if none does."""
        names = {model.id, model.config.id}
        if _named_family(model) is None:
            names.add(EVERY_MODEL)
        serving = self._serving(model)
        return tuple(
            bundle.name
            for bundle in self._bundles
            if names & self._models[bundle.name] or any(family.id in serving for family in self._families[bundle.name])
        )

    def place(self, config: ModelConfig) -> Mapping[str, tuple[str, ...]]:
        """Name the bundles that serve each profile of a config.

        Raises:
            InferenceError: `VALIDATION_ERROR`: no bundle serves one of them; `details` says what each bundle lacks.
        """
        placed = {model.profile.name: (model, self.bundles_of(model)) for model in profiles_of(config)}
        unplaced = [model for model, bundles in placed.values() if not bundles]
        if unplaced:
            lacks = [
                {"loc": f"profiles.{model.profile.name}", "message": lack}
                for model in unplaced
                for lack in self._lacks(model)
            ]
            raise InferenceError(
                "VALIDATION_ERROR", self._refusal(unplaced[0]), param=lacks[0]["loc"], details={"details": lacks}
            )
        return {name: bundles for name, (_, bundles) in placed.items()}

    def _refusal(self, model: ResolvedModel) -> str:
        """Write why no bundle serves a model, and the remedy."""
        return (
            f"profiles.{model.profile.name} of {model.config.id}: no bundle can serve it. "
            f"{'; '.join(self._lacks(model))}. {_remedy(model)} or name the model in the `models` of a bundle."
        )

    def _lacks(self, model: ResolvedModel) -> list[str]:
        """Describe what each bundle lacks to serve a model."""
        return [f"{bundle.name}: {self._lack(bundle, model)}" for bundle in self._bundles] or ["there are no bundles"]

    def _lack(self, bundle: Bundle, model: ResolvedModel) -> str:
        families = ", ".join(family.id for family in self._families[bundle.name])
        wanted, card = _named_family(model), model.config.expected
        if wanted is not None:
            lack = f"none of its plugins registers the family {wanted!r}" + (
                f" (they register {families})" if families else ""
            )
        elif card is None or not families:
            lack = "its `models` do not name it" + ("" if families else ", and its plugins register no family")
        else:
            facts = (
                f"model type {card.model_type or 'unknown'}, architectures {', '.join(card.architectures) or 'unknown'}"
            )
            lack = f"its `models` do not name it, and none of its families ({families}) claims its weights ({facts})"
        return "; ".join([lack, *self._unusable(bundle)])

    def _unusable(self, bundle: Bundle) -> Iterable[str]:
        for name, reports in self._reports[bundle.name].items():
            if not reports:
                yield f"its plugin {name} is not installed here"
            for report in reports:
                if report.state in ("broken", "blocked"):
                    yield f"its plugin {report.name} is {report.state} here: {report.cause}"

    def _registered(self, bundle: Bundle) -> Iterable[ModelFamily]:
        for reports in self._reports[bundle.name].values():
            for report in reports:
                for family in report.registers.get("sie_model_families", ()):
                    yield self._plugins.families[family]

    def _serving(self, model: ResolvedModel) -> frozenset[str]:
        """Name the families that serve a model: the one its config names, or those that claim its expected card."""
        wanted = _named_family(model)
        if wanted is not None:
            return frozenset([wanted])
        card = model.config.expected
        return frozenset() if card is None or model.config.weightless else self._claiming(card)

    def _claiming(self, card: ModelCard) -> frozenset[str]:
        key = json.dumps(
            [card.config, [(module.type, module.config) for module in card.modules], card.files], sort_keys=True
        )
        if key in self._claims:
            return self._claims[key]
        answered, claiming = True, set()
        for family in {family.id: family for each in self._families.values() for family in each}.values():
            try:
                if not family.weightless and isinstance(ask_claim(self._plugins, family, card), Claim):
                    claiming.add(family.id)
            except ClaimFailed:
                answered = False
        if answered:
            if len(self._claims) >= MOST_CARDS:
                self._claims.clear()
            self._claims[key] = frozenset(claiming)
        return frozenset(claiming)


def _reports(name: str, reports: Iterable[PluginReport]) -> list[PluginReport]:
    """Find the plugins of an entry point's or a distribution's name."""
    distribution = canonicalize_name(name)
    return [each for each in reports if name == each.name or distribution == canonicalize_name(each.distribution)]


def _named_family(model: ResolvedModel) -> str | None:
    wanted = model.profile.adapter_path
    return None if wanted is None or is_class_path(wanted) else wanted


def _remedy(model: ResolvedModel) -> str:
    if _named_family(model) is not None:
        return "Correct `adapter_path`, leave it out so that the weights decide,"
    if model.config.expected is None:
        return (
            "State in `weights` what its files will say (`model_type`, `architectures`, `modules`, `files`), name a "
            "family in `adapter_path`,"
        )
    return "Name a family in `adapter_path`"

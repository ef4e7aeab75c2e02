"""Registries as a config service has them, for the tests of its followers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sie_bundle.bundles.placement import BundleView
from sie_bundle.bundles.registry import Registry, make_registry

from sie_core.catalog.configs.reading import config_of
from sie_core.catalog.configs.snapshot import make_catalog
from sie_core.contracts import ResolvedModel

BUNDLES = [BundleView("default", 10, ("pkg.first",)), BundleView("other", 20, ("pkg.second",))]


def bundles_of(model: ResolvedModel) -> Sequence[str]:
    """Models of `other/` are served by the second bundle alone."""
    return ("other",) if model.id.startswith("other/") else ("default", "other")


def registry_of(texts: Mapping[str, str], epoch: int, bundles: Sequence[BundleView] = BUNDLES) -> Registry:
    """The registry of configs in YAML, by their ids."""
    configs = [config_of(text.encode(), source=id_, folder=None) for id_, text in texts.items()]
    return make_registry(replace(make_catalog(1, configs), config_epoch=epoch), bundles, bundles_of)


def text_of(id_: str, **fields: object) -> str:
    """A config in YAML, with a comment."""
    rest = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return f"sie_id: {id_}  # a model\nhf_id: {id_}\n{rest}"

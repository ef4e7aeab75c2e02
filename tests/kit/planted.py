"""Runs the checks of the kit on planted faults, and on the sound parts that they are made of."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from typing import Any

from sie_fake.adapter import FakeAdapter
from sie_kit import LoadedModel, outcomes, serving
from sie_kit.checklist import KINDS, ON_MODELS
from sie_kit.checks.adapter import served as served_check
from sie_kit.checks.stores import Place
from sie_kit.checks.tiers import Tier
from sie_kit.loading import samples
from sie_kit.outcomes import Skipped, reason
from sie_kit.server import Served

from sie_core.contracts import (
    Device,
    Item,
    LoadContext,
    ModelConfig,
    ModelFamily,
    ObjectStoreFactory,
    Profile,
    ResolvedModel,
    TierContext,
    WeightTierFactory,
)
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginSet, discover
from sie_core.settings import Settings
from tests.kit.faults import adapters, conversions, families, memory, places, queues, schedulers
from tests.kit.faults.seeding import FAULTS, Fault

__all__ = ["FAULTS", "adapters", "families", "memory", "places", "queues", "schedulers"]
ENCODES = {"encode": {"dense": {"dim": 8}}}
NAMES = [Item(text="here person=Ada lives"), Item(text="place=Rome and person=Bo in a model"), *samples()[:2]]
LIMIT_S = 3.0
"""Seconds that a check of a fault that hangs may take."""


@cache
def installed() -> PluginSet:
    return discover(Settings(plugins=("fake",)), BUILTINS)


def loaded(
    adapter: type[FakeAdapter], tasks: Mapping[str, Any] = ENCODES, dims: int | None = None, **loadtime: Any
) -> LoadedModel:
    """Load an adapter's class as a model of the family of fakes."""
    if dims:
        tasks = {"encode": {"dense": {"dim": dims}}}
    config = ModelConfig("sie-fake/embedder", weightless=True, tasks=tasks, max_sequence_length=64)
    resolved = ResolvedModel(config.id, config, Profile("default", "fake", loadtime=loadtime))
    context = LoadContext(resolved, Device("cpu"), "float32")
    again = partial(loaded, adapter, tasks, **loadtime)
    others = (again, partial(loaded, adapter, tasks, 12, **loadtime))
    family = installed().families["fake"]
    serve = served(adapter) if "encode" in tasks else None  # the model that is served encodes
    return LoadedModel(adapter(context), family, resolved, context=context, others=others, serve=serve)


def served(adapter: type[FakeAdapter]) -> Callable[[], AbstractContextManager[Served]]:
    """Have the engine serve the model `sie-fake/embedder` by an adapter's class."""
    name = f"{adapter.__module__}:{adapter.__qualname__}"
    families: dict[str, ModelFamily] = {"fake": replace(installed().families["fake"], load=name)}
    plugins = replace(installed(), families=families)
    return partial(serving, plugin_set=plugins, preload_models=("sie-fake/embedder",), device="cpu")


def subject(fault: Fault) -> Any:
    """Set up a fault as its kind's checks take it."""
    if fault.kind == "postprocessor":
        return conversions.made(fault.subject)
    if fault.kind == "weight tier":
        return Tier(WeightTierFactory("shelf", 150, fault.subject), TierContext(Settings()))
    if fault.kind == "object store":
        return Place(ObjectStoreFactory("t", fault.subject), f"t://{tempfile.mkdtemp()}")
    return fault.subject


def runs(fault: Fault) -> Iterator[tuple[str, Callable[[], None]]]:
    """List the checks of a fault's kind, each as a function without arguments."""
    if fault.kind == "adapter":
        tasks = fault.given.get("tasks", ENCODES)
        model = cache(partial(loaded, fault.subject, tasks))
        items = NAMES if "extract" in tasks else samples()
        for check in KINDS["model"]:
            yield check.__name__, partial(_on_model, check, model, items)
        return
    part = subject(fault)
    for check in KINDS[fault.kind]:
        if check not in ON_MODELS:
            yield check.__name__, partial(check, part)


def _on_model(check: Callable[..., None], model: Callable[[], LoadedModel], items: Sequence[Item]) -> None:
    check(model(), items)


def outcome(run: Callable[[], None], *, hangs: bool = False) -> str:
    """Run one check; return why it failed, or an empty string."""
    before = outcomes.CHECK_LIMIT_S, served_check.LIMIT_S
    if hangs:
        outcomes.CHECK_LIMIT_S = served_check.LIMIT_S = LIMIT_S
    try:
        run()
    except Skipped:
        return ""
    except BaseException as error:
        return reason(error)
    finally:
        outcomes.CHECK_LIMIT_S, served_check.LIMIT_S = before
    return ""

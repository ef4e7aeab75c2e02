"""Loads one model on loader threads: finds its weights, card and family, then loads its adapter."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from sie_core.batching.checked import CheckedPolicy
from sie_core.cache import HeldWeights, WeightChain, hold_weights
from sie_core.catalog import FamilyChoice, check_profile, choose_family, read_card
from sie_core.contracts import (
    Adapter,
    BatchLimits,
    Device,
    LoadContext,
    ModelCard,
    ModelFamily,
    ModelLoadError,
    ResolvedModel,
)
from sie_core.contracts.weights import Progress
from sie_core.engine.metrics import EngineMetrics, ModelMetrics
from sie_core.engine.models.lease import Leases
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.loras import Loras
from sie_core.engine.residency.lora_loader import LoraLoader
from sie_core.engine.residency.residency import Residency
from sie_core.engine.timeouts import Timeouts
from sie_core.plugins import PluginSet
from sie_core.postprocess.converters import ConverterFailed, Converters, turned_on
from sie_core.settings import Settings

log = logging.getLogger(__name__)

StageReport = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model whose weights were found, and the family that serves it."""

    resolved: ResolvedModel
    # None for a weightless model.
    weights: HeldWeights | None
    card: ModelCard | None
    choice: FamilyChoice
    # Options of its profile that its family has not.
    ignored: tuple[str, ...]
    # The precision asked for.
    precision: str


class Loader:
    """Turns a model of the catalog into a loaded one, in two steps.

    Args:
        device: Where models are loaded to.
        compute_threads: CPU threads a forward pass may use.
        residency: Places the LoRA adapters of its models.
        new_policy: Makes the batch policy of a model.
        timeouts: Those of LoRA adapters among them.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        settings: Settings,
        plugins: PluginSet,
        weights: WeightChain,
        device: Device,
        compute_threads: int,
        metrics: EngineMetrics,
        residency: Residency,
        new_policy: Callable[[BatchLimits], CheckedPolicy],
        timeouts: Timeouts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._plugins = plugins
        self._weights = weights
        self._device = device
        self._compute_threads = compute_threads
        self._metrics = metrics
        self._residency = residency
        self._new_policy = new_policy
        self._timeouts = timeouts
        self._clock = clock

    def fetch(self, resolved: ResolvedModel, report: StageReport, progress: Progress) -> Fetched:
        """Find the weights and the family. Several models may be fetched at once.

        Args:
            resolved: The model.
            report: Called with each stage and its seconds.
            progress: Called with the progress of a download.

        Raises:
            ModelLoadError: With the failure's class.
        """
        with _timed("fetch", report):
            weights = hold_weights(resolved.config, self._weights, progress)
            card = None if weights is None else read_card(weights.folder)
        choice = choose_family(self._plugins, resolved, card, self._device)
        ignored = check_profile(choice.family, resolved.profile, self._plugins.postprocessors)
        precision = resolved.profile.compute_precision or self._settings.default_compute_precision
        return Fetched(resolved, weights, card, choice, ignored, precision)

    def load(self, fetched: Fetched, report: StageReport) -> LoadedModel:
        """Load a fetched model; `Residency` has one load at a time.

        Raises:
            ModelLoadError: With the failure's class.
            OutOfDeviceMemory: The device has no room.
        """
        with _timed("import", report):
            adapter_class = _import_adapter(fetched.choice.family)
        with _timed("load", report):
            adapter = adapter_class.load(self._context(fetched, report))
        try:
            loaded = self._loaded(fetched.resolved, fetched.choice, adapter, fetched.ignored)
        except BaseException:
            adapter.unload()
            raise
        loaded.weights = fetched.weights
        return loaded

    def _context(self, fetched: Fetched, report: StageReport) -> LoadContext:
        return LoadContext(
            model=fetched.resolved,
            device=self._device,
            precision=fetched.precision,
            weights=None if fetched.weights is None else fetched.weights.folder,
            card=fetched.card,
            attention_backend=self._settings.attention_backend,
            threads=self._compute_threads,
            runners=self._plugins.runners,
            stage=lambda name, seconds: report(f"load.{name}", seconds),
        )

    def _loaded(
        self, resolved: ResolvedModel, choice: FamilyChoice, adapter: Adapter, ignored: tuple[str, ...]
    ) -> LoadedModel:
        notes = {"family": choice.reason, "precision": adapter.facts.precision, **adapter.facts.notes}
        report = partial(self._plugins.faulty, "sie_postprocessors")
        converters = Converters(self._plugins.postprocessors, adapter.facts.dims, report)
        notes |= self._warm(resolved, converters)
        if ignored:
            notes["ignored options"] = ", ".join(ignored)
            log.warning("%s: the family %s knows no %s", resolved.id, choice.family.id, ", ".join(ignored))
        log.info("%s is served by %s: %s", resolved.id, choice.family.id, notes)
        limits, leases = self._limits(resolved), Leases(self._clock)
        return LoadedModel(
            resolved=resolved,
            family=choice.family,
            adapter=adapter,
            facts=adapter.facts,
            new_policy=partial(self._new_policy, limits),
            metrics=ModelMetrics(self._metrics, resolved.id),
            converters=converters,
            loras=Loras(
                resolved.id,
                resolved.config.loras,
                self._settings.max_loras_per_model,
                LoraLoader(resolved.id, adapter, leases, resolved.config.loras, self._weights, self._residency).load,
                self._settings.lora_by_id,
                self._timeouts,
                self._clock,
            ),
            notes=notes,
            leases=leases,
        )

    def _warm(self, resolved: ResolvedModel, converters: Converters) -> dict[str, str]:
        # Make the converters that the profile turns on; return a note on each.
        notes = {}
        for each in turned_on(self._plugins.postprocessors.values(), resolved.profile):
            try:
                made = converters.warm(each, resolved.profile)
            except ConverterFailed as error:
                raise ModelLoadError("DEPENDENCY", f"{error}; mend or block its plugin.") from error
            except ValueError as error:
                raise ModelLoadError("CONFIG", f"Profile {resolved.profile.name!r}: {error}.") from error
            notes[each.name] = f"makes {each.target} of {made.dims} dimensions of {each.source}"
        return notes

    def _limits(self, resolved: ResolvedModel) -> BatchLimits:
        run_ms = self._settings.max_batch_ms
        run_s = None if run_ms is None else run_ms / 1000
        if run_s is None and self._device.kind == "cpu":
            run_s = self._timeouts.cpu_batch_s
        return BatchLimits(
            max_cost=resolved.profile.max_batch_cost or self._settings.max_batch_cost,
            max_requests=self._settings.max_batch_requests,
            max_run_s=run_s,
            max_wait_s=self._settings.max_batch_wait_ms / 1000,
        )


def _import_adapter(family: ModelFamily) -> type[Adapter]:
    module_name, _, class_name = family.adapter.partition(":")
    try:
        adapter = getattr(importlib.import_module(module_name), class_name)
    except ImportError as error:
        log.exception("the adapter of the family %s cannot be imported", family.id)
        missing = f"the module {error.name!r}" if error.name else "a module"
        raise ModelLoadError(
            "DEPENDENCY", f"The family {family.id!r} cannot import {missing}; install what its plugin needs."
        ) from error
    except AttributeError as error:
        raise ModelLoadError(
            "DEPENDENCY", f"The family {family.id!r} names the adapter {family.adapter}, which does not exist."
        ) from error
    if not (isinstance(adapter, type) and issubclass(adapter, Adapter)):
        raise ModelLoadError("DEPENDENCY", f"{family.adapter} of the family {family.id!r} is no `Adapter`.")
    return adapter


@contextmanager
def _timed(stage: str, report: StageReport) -> Iterator[None]:
    started = time.monotonic()
    yield
    report(stage, time.monotonic() - started)

"""Loads models, and LoRA adapters onto them: finds their weights, then has the model's family load them."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from sie_core.cache import HeldWeights, WeightChain
from sie_core.cache.choices import SERVED, kept_choices, served_setup
from sie_core.cache.progress import ShownProgress
from sie_core.catalog.fetching import FetchedModel, fetch_model
from sie_core.catalog.loading import StageReport, load_adapter, timed
from sie_core.concurrency.leases import Leases
from sie_core.concurrency.threads import on_thread, on_thread_to_its_end
from sie_core.contracts import (
    Adapter,
    BatchLimits,
    Device,
    KeptChoice,
    LoadContext,
    Lora,
    LoraConfig,
    ModelFacts,
    ModelLoadError,
    ResolvedModel,
    WeightRequest,
)
from sie_core.contracts.model.weights import Progress
from sie_core.engine.metrics import EngineMetrics, ModelMetrics
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.loras import LoadedLora, Loras
from sie_core.engine.residency.residency import Residency
from sie_core.engine.timeouts import Timeouts
from sie_core.memory import weight_bytes
from sie_core.memory.estimates import Need
from sie_core.memory.heap import settle_heap, trim_heap
from sie_core.plugins import PluginSet
from sie_core.postprocess.converters import ConverterFailed, Converters, turned_on
from sie_core.settings import CPU_BATCH_REQUESTS, Settings

log = logging.getLogger(__name__)

# The precision that is assumed of a LoRA adapter before its load: the widest that adapters keep their factors in.
LORA_PRECISION = "float32"
# Expected seconds of an adapter's load, for the estimates of loads queued behind it.
LORA_LOAD_S = 0.5


@dataclass(frozen=True, slots=True)
class Loader:
    """Turns a model of the catalog into a loaded one, in two steps."""

    settings: Settings
    plugins: PluginSet
    weights: WeightChain
    device: Device
    # CPU threads a forward pass may use.
    compute_threads: int
    metrics: EngineMetrics
    # Places the LoRA adapters of its models.
    residency: Residency
    timeouts: Timeouts
    clock: Callable[[], float] = time.monotonic

    def fetch(self, resolved: ResolvedModel, report: StageReport, progress: Progress) -> FetchedModel:
        """Find the weights and the family, as `fetch_model` does; `report` gets each stage and its seconds."""
        shown = ShownProgress(resolved.id, self.bar, self.clock)

        def moved(done: int, total: int) -> None:
            progress(done, total)
            shown.moved(done, total)

        with contextlib.closing(shown), timed("fetch", report):
            return fetch_model(resolved, self.weights, self.plugins, self.device, moved)

    @property
    def bar(self) -> TextIO | None:
        """The terminal on which progress is drawn; None for lines in the log."""
        return sys.stderr if sys.stderr.isatty() and not self.settings.log_json else None

    def precision(self, resolved: ResolvedModel) -> str:
        """Return the precision of a model's profile, or else of the settings."""
        return resolved.profile.compute_precision or self.settings.default_compute_precision

    def _precision_note(self, resolved: ResolvedModel, facts: ModelFacts) -> str:
        """Explain why a model does not compute in the requested precision, and who requested it."""
        asked, variable = self.precision(resolved), "SIE_DEFAULT_COMPUTE_PRECISION"
        if resolved.profile.compute_precision:
            who = f"compute_precision asks for {asked}"
        elif "default_compute_precision" in self.settings.model_fields_set:
            who = f"{variable} asks for {asked}"
        else:
            who = f"{asked} is the default ({variable})"
        unsaid = "" if facts.precision == asked else f"its family serves it in {facts.precision} here"
        why = facts.notes.get("precision", unsaid)
        return f"{who}; {why}" if why else who

    def _keep(self, fetched: FetchedModel, facts: ModelFacts, note: str) -> None:
        """Record precision and runner of a model for `sie models`, which asks no server."""
        if fetched.weights is None:
            return
        choices = kept_choices(self.settings, self.plugins, fetched.weights.folder)
        served = KeptChoice(SERVED, facts.computed, note, setup=served_setup(fetched.resolved, self.device))
        if choices.recall(SERVED, served.setup) != served:
            choices.keep(served)

    def load(self, fetched: FetchedModel, report: StageReport) -> LoadedModel:
        """Load a fetched model; `Residency` has one load at a time.

        Raises:
            ModelLoadError: With the failure's class.
            OutOfDeviceMemory: The device has no room.
        """
        try:
            adapter, fetched = load_adapter(fetched, self._context(fetched, report), self.plugins, report)
            try:
                return self._loaded(fetched, adapter)
            except BaseException:
                adapter.unload()
                raise
        finally:
            settle_heap()

    def _context(self, fetched: FetchedModel, report: StageReport) -> LoadContext:
        weights = None if fetched.weights is None else fetched.weights.folder
        return LoadContext(
            model=fetched.resolved,
            device=self.device,
            precision=self.precision(fetched.resolved),
            weights=weights,
            card=None if fetched.card is None else self.plugins.informed(fetched.card),
            tokenizers={} if fetched.weights is None else fetched.weights.tokenizer_folders,
            attention_backend=self.settings.attention_backend,
            runner=self.settings.runner,
            threads=self.compute_threads,
            runners=self.plugins.runners,
            choices=None if weights is None else kept_choices(self.settings, self.plugins, weights),
            stage=lambda name, seconds: report(f"load.{name}", seconds),
        )

    def _loaded(self, fetched: FetchedModel, adapter: Adapter) -> LoadedModel:
        resolved, family = fetched.resolved, fetched.choice.family
        converters = Converters(
            self.plugins.postprocessors, adapter.facts.dims, partial(self.plugins.faulty, "sie_postprocessors")
        )
        notes = {"family": fetched.choice.reason, **adapter.facts.notes}
        why = self._precision_note(resolved, adapter.facts)
        notes["precision"] = f"{adapter.facts.precision}: {why}"
        self._keep(fetched, adapter.facts, why)
        notes |= self._warm(resolved, converters)
        if fetched.ignored:
            notes["ignored options"] = ", ".join(fetched.ignored)
            log.warning(
                "%s: the family %s does not read the options %s", resolved.id, family.id, notes["ignored options"]
            )
        log.debug("%s is served by %s: %s", resolved.id, family.id, notes)
        leases, declared = Leases(self.clock), resolved.config.loras
        loras = LoraLoader(resolved.id, adapter, leases, declared, self.weights, self.residency)
        most, by_id = self.settings.max_loras_per_model, self.settings.lora_by_id
        return LoadedModel(
            resolved=resolved,
            family=family,
            adapter=adapter,
            facts=adapter.facts,
            limits=self._limits(resolved),
            metrics=ModelMetrics(self.metrics, resolved.id),
            converters=converters,
            loras=Loras(resolved.id, declared, most, loras.load, by_id, self.timeouts, self.clock),
            notes=notes,
            leases=leases,
            weights=fetched.weights,
        )

    def _warm(self, resolved: ResolvedModel, converters: Converters) -> dict[str, str]:
        # Make the converters that the profile turns on; return a note on each.
        notes = {}
        for each in turned_on(self.plugins.postprocessors.values(), resolved.profile):
            try:
                made = converters.warm(each, resolved.profile)
            except ConverterFailed as error:
                raise ModelLoadError("DEPENDENCY", f"{error}; mend or block its plugin.") from error
            except ValueError as error:
                raise ModelLoadError("CONFIG", f"Profile {resolved.profile.name!r}: {error}.") from error
            notes[each.name] = f"makes {each.target} of {made.dims} dimensions of {each.source}"
        return notes

    def _limits(self, resolved: ResolvedModel) -> BatchLimits:
        run_ms = self.settings.max_batch_ms
        run_s = None if run_ms is None else run_ms / 1000
        if run_s is None and self.device.kind == "cpu":
            run_s = self.timeouts.cpu_batch_s
        most_cost = resolved.profile.max_batch_cost or self.settings.max_batch_cost
        # A request costs at least one unit.
        most_requests = CPU_BATCH_REQUESTS if self.device.kind == "cpu" else most_cost
        return BatchLimits(
            max_cost=most_cost,
            max_requests=self.settings.max_batch_requests or most_requests,
            max_run_s=run_s,
            weight=resolved.config.weight,
        )


@dataclass(frozen=True, slots=True)
class LoraLoader:
    """Loads the LoRA adapters of one model. Event loop only."""

    model: str
    adapter: Adapter
    # The model's. A running load holds one, so that the model stays even if its clients leave.
    leases: Leases
    declared: Mapping[str, LoraConfig]
    # Source of the files of undeclared adapters.
    weights: WeightChain
    residency: Residency

    async def load(self, name: str) -> LoadedLora:
        """Load the adapter `name`, declared or a repository. Unused models and adapters are evicted for it.

        Raises:
            ModelLoadError: With the failure's class; `OOM` if no room could be made.
            OutOfDeviceMemory: The device had no room after all.
            DeviceLost: The device is lost until a restart; every request is refused.
        """
        config = self.declared.get(name) or LoraConfig(name)
        held, wanted = await on_thread(f"sie-fetch-{name}", lambda: _fetch(config, self.weights))
        with held:
            who, need = f"the LoRA adapter {name} of {self.model}", Need(wanted, True)
            placed = await self.residency.place(
                who, lambda: need, lambda: self._load(name, held.folder), LORA_LOAD_S, model=self.model
            )
            return placed.result

    async def _load(self, name: str, folder: Path) -> LoadedLora:
        started = time.monotonic()
        with self.leases.acquire():
            lora = await on_thread_to_its_end(f"sie-lora-{name}", lambda: self._load_now(name, folder))
        return LoadedLora(lora, time.monotonic() - started)

    def _load_now(self, name: str, folder: Path) -> Lora:
        try:
            return self.adapter.load_lora(name, folder)
        finally:
            trim_heap()


def _fetch(config: LoraConfig, weights: WeightChain) -> tuple[HeldWeights, int]:
    # Find the files of an adapter; return them with the bytes it will take.
    if config.weights_path is None:
        held = weights.hold(WeightRequest(config.hf_id or config.name, config.hf_revision))
    elif (folder := Path(config.weights_path)).is_dir():
        held = HeldWeights(folder, None)
    else:
        raise ModelLoadError("NOT_FOUND", f"The `weights_path` of {config.name} is not a folder on this machine.")
    files = [file.name for file in held.folder.glob("*.safetensors")]
    return held, weight_bytes(held.folder, files, LORA_PRECISION)

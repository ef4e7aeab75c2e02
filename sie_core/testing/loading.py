"""Loads one model of a plugin as the engine would, without an engine.

The checks then call the adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from sie_core.cache import WeightChain, build_chain
from sie_core.catalog import build_catalog, resolve_options
from sie_core.catalog.fetching import fetch_model
from sie_core.catalog.loading import load_adapter
from sie_core.contracts import (
    Adapter,
    Device,
    Item,
    LoadContext,
    Media,
    ModelConfig,
    ModelFacts,
    ModelFamily,
    Operation,
    PluginError,
    ResolvedModel,
    Task,
    WeightRequest,
)
from sie_core.plugins import PluginSet
from sie_core.settings import Settings
from sie_core.verification.pictures import png

LABELS = ("person", "place", "model")
"""Labels for `extract` on models that require some; one that takes some without may know only its own."""
QUERY = Item(text="What does search need?")
"""The query for `score`."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded model and the engine's knowledge of it."""

    adapter: Adapter
    family: ModelFamily
    resolved: ResolvedModel
    _: KW_ONLY
    loras: Mapping[str, Path] = field(default_factory=dict)
    """The LoRA adapters its config declares that are on this machine, with their folders."""

    def task(self, operation: Operation | None = None) -> Task:
        """Ask for everything the operation can return, with the profile's own options; None takes the model's first."""
        facts = self.adapter.facts
        operation = operation or facts.operations[0]
        options = resolve_options(self.family, self.resolved, {}, operation)
        return Task(
            operation,
            output_types=facts.outputs if operation == "encode" else (),
            input_type=options.input_type,
            instruction=options.instruction,
            labels=LABELS if operation == "extract" and facts.takes_labels == "required" else (),
            query=QUERY if operation == "score" else None,
            options=options.family,
        )

    def tasks(self) -> list[Task]:
        """Ask for everything the model does: one task an operation."""
        return [self.task(operation) for operation in self.adapter.facts.operations]


def load_model(model: str, plugins: PluginSet, settings: Settings, device: str = "cpu") -> LoadedModel:
    """Load `model` on the first device of a kind, in the precision its config names or float32.

    Raises:
        InferenceError: The model does not exist.
        ModelLoadError: It cannot be loaded.
        PluginError: No probe finds such a device.
    """
    resolved = build_catalog(settings, plugins).resolve(model)
    chain = build_chain(settings, plugins)
    where = find_device(device, plugins)
    fetched = fetch_model(resolved, chain, plugins, where)
    context = LoadContext(
        model=resolved,
        device=where,
        precision=resolved.profile.compute_precision or "float32",
        weights=None if fetched.weights is None else fetched.weights.folder,
        card=None if fetched.card is None else plugins.informed(fetched.card),
        tokenizers={} if fetched.weights is None else fetched.weights.tokenizer_folders,
        attention_backend=settings.attention_backend,
        runner=settings.runner,
        runners=plugins.runners,
    )
    adapter, fetched = load_adapter(fetched, context, plugins)
    return LoadedModel(adapter, fetched.choice.family, resolved, loras=_loras(resolved.config, chain))


def _loras(config: ModelConfig, chain: WeightChain) -> dict[str, Path]:
    found = {}
    for name, lora in config.loras.items():
        if lora.weights_path is not None:
            found[name] = Path(lora.weights_path)
        elif (there := chain.find(WeightRequest(lora.hf_id or name, lora.hf_revision))) is not None:
            found[name] = there[1]
    return found


def find_device(kind: str, plugins: PluginSet) -> Device:
    """Return the first device of `kind`.

    Raises:
        PluginError: No probe finds one.
    """
    for probe in plugins.device_probes:
        if probe.kind == kind:
            for device in probe.devices():
                return device
    kinds = ", ".join(probe.kind for probe in plugins.device_probes)
    raise PluginError(f"no device of kind {kind!r} is there; there are probes for {kinds}")


def samples() -> Sequence[Item]:
    """Return texts of several lengths and scripts, as items."""
    texts = [
        "a",
        "Search needs small models.",
        "Der schnelle braune Fuchs springt über den faulen Hund, zweimal.",
        "検索には小さなモデルが必要です。",
        "naïve café — e\u0301 👩‍🔬 ok?",
        "one two three four five six seven eight nine ten " * 4,
    ]
    return [Item(id=f"sample-{position}", text=text) for position, text in enumerate(texts)]


def fitting(items: Sequence[Item], facts: ModelFacts) -> Sequence[Item]:
    """Keep the texts of `items` for a model that reads text, and add two images for a vision model."""
    found = [item for item in items if "text" in facts.inputs]
    if "image" in facts.inputs:
        found += [Item(id=f"image-{size}", images=(Media(png(size, size), "png"),)) for size in (8, 24)]
    return found

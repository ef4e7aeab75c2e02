"""Loads one model of a plugin as the engine would, without an engine.

The checks then call the adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    Option,
    PluginError,
    ResolvedModel,
    Task,
    WeightRequest,
)
from sie_core.contracts.model.weights import holds_weights
from sie_core.plugins import PluginSet
from sie_core.settings import Settings
from sie_core.verification.pictures import png
from sie_kit.outcomes import Skipped

if TYPE_CHECKING:
    from sie_kit.server import Served

LABELS = ("person", "place", "model")
"""Labels for `extract` on models that require some; one that takes some without may know only its own."""
Items = Sequence[Item]
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
    context: LoadContext | None = None
    """What the load was given; None if the kit did not load it."""
    weight_bytes: int = 0
    """Bytes of the files of its weights; 0 if it has none."""
    others: Sequence[Callable[[], LoadedModel]] = ()
    """Functions that load this model once more, and another one of its family if there is one."""
    serve: Callable[[], AbstractContextManager[Served]] | None = None
    """Serves the model by the engine, for as long as the context is open."""

    def again(self) -> LoadedModel:
        """Load the same model once more.

        Raises:
            Skipped: It was not loaded by the kit.
        """
        if not self.others:
            raise Skipped("it cannot be loaded again here")
        return self.others[0]()

    @property
    def precision(self) -> str:
        """The precision that was asked for."""
        return "float32" if self.context is None else self.context.precision

    def options(self, task: Task) -> list[Option]:
        """List the options of a request that an operation reads."""
        options = (option for option in self.family.options if option.stage != "load")
        return [option for option in options if not option.operations or task.operation in option.operations]

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
    return load_resolved(build_catalog(settings, plugins).resolve(model), plugins, settings, device)


def load_resolved(resolved: ResolvedModel, plugins: PluginSet, settings: Settings, device: str) -> LoadedModel:
    """Load a model of a catalog; see `load_model`."""
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
    loras = _loras(resolved.config, chain)
    again = partial(load_resolved, resolved, plugins, settings, device)
    family = fetched.choice.family
    files = [] if context.weights is None else [file for file in context.weights.rglob("*") if file.is_file()]
    names = {file: file.relative_to(context.weights or file).as_posix() for file in files}
    size = sum(file.stat().st_size for file in files if holds_weights(names[file], family.weights))
    return LoadedModel(adapter, family, resolved, loras=loras, context=context, weight_bytes=size, others=(again,))


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


def values_of(option: Option) -> list[Any]:
    """Return a few allowed values of an option."""
    if option.choices:
        return list(option.choices)[:3]
    kinds = option.type if isinstance(option.type, tuple) else (option.type,)
    low = 0 if option.minimum is None else option.minimum
    high = low + 2 if option.maximum is None else option.maximum
    by_kind: dict[type, list[Any]] = {
        bool: [False, True],
        str: ["sie", "kit"],
        int: [int(low), int(high)],
        float: [float(low), float(high)],
    }
    return [value for kind in kinds for value in by_kind.get(kind, [])]

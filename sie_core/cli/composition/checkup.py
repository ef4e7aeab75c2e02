"""Tries what plugins registered, as far as possible without a model, so that faults are named before a request meets
them.

Faults are noted in the `PluginSet`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sie_core.batching.checked import BrokenScheduler, make_scheduler
from sie_core.cache import build_chain
from sie_core.catalog import choose_family, open_folder
from sie_core.contracts import (
    BatchLimits,
    Device,
    DeviceMemory,
    MemoryLimits,
    ModelCard,
    ModelConfig,
    ModelLoadError,
    PluginError,
    Profile,
    QueuedUnit,
    QueueLimits,
    ResolvedModel,
    Unit,
    WeightRequest,
)
from sie_core.memory.checked import make_manager
from sie_core.memory.meter import DeviceMemoryMeter
from sie_core.plugins import PluginSet
from sie_core.plugins.selection import choose_device
from sie_core.postprocess.converters import Converters
from sie_core.settings import Settings, SettingsError

MODEL = "sie/checkup"
CARDS = (
    ModelCard(Path("checkup"), {}),
    ModelCard(Path("checkup"), {"architectures": ["BertModel"], "model_type": "bert"}, files=("model.safetensors",)),
)
"""A card of weights without any facts, and an encoder's."""
DIMS = 8
"""Dimensions of the vectors that postprocessors are tried with."""


def try_out(settings: Settings, plugins: PluginSet) -> list[str]:
    """Try the registrations of plugins; return why settings that name parts of them cannot be used."""
    refused = []
    for part in (_folder, _tiers, _claims, _device, _scheduler, _memory, _postprocessors):
        try:
            part(settings, plugins)
        except (PluginError, SettingsError) as error:
            refused.append(str(error))
    return refused


def _folder(settings: Settings, plugins: PluginSet) -> None:
    open_folder(settings, plugins)


def _tiers(settings: Settings, plugins: PluginSet) -> None:
    build_chain(settings, plugins).find(WeightRequest(MODEL))


def _claims(settings: Settings, plugins: PluginSet) -> None:
    profile = Profile("default")
    model = ResolvedModel(MODEL, ModelConfig(MODEL, profiles={profile.name: profile}), profile)
    for card in CARDS:
        with suppress(ModelLoadError):  # no family claims it, or not for this device
            choose_family(plugins, model, card, Device("cpu"))


def _device(settings: Settings, plugins: PluginSet) -> None:
    report = partial(plugins.faulty, "sie_device_probes")
    device = choose_device(settings.device, plugins.device_probes, report)
    DeviceMemoryMeter(device, plugins.device_probes, None, report).measure()


@dataclass(frozen=True)
class _Model:
    """A model, as a scheduler sees it."""

    id: str


@dataclass(eq=False)
class _Asked:
    """A request, as a scheduler sees it."""

    model: _Model
    client: None = None
    priority: None = None
    deadline: None = None
    admitted: bool = False
    more_cost: int = 0


def _scheduler(settings: Settings, plugins: PluginSet) -> None:
    scheduler = make_scheduler(plugins, settings.scheduler, QueueLimits(max_cost=64))
    request = _Asked(_Model(MODEL))
    try:
        scheduler.add_model(request.model, BatchLimits(max_cost=64, max_requests=4))
        scheduler.add(request, [QueuedUnit(Unit(0, 1, "key", payload=None), request)], 0.0)
        scheduler.next(0.0)
    except BrokenScheduler as error:
        scheduler.lose(error)


def _memory(settings: Settings, plugins: PluginSet) -> None:
    manager = make_manager(plugins, settings.memory_manager, MemoryLimits(pressure=0.85, idle_s=None))
    manager.make_room(0, DeviceMemory(0, 1), [], 0.0)
    manager.relieve(DeviceMemory(0, 1), [], 0.0)


def _postprocessors(settings: Settings, plugins: PluginSet) -> None:
    dims = {each.source: DIMS for each in plugins.postprocessors.values()}
    converters = Converters(plugins.postprocessors, dims, partial(plugins.faulty, "sie_postprocessors"))
    for each in plugins.postprocessors.values():
        with suppress(ValueError):  # it fails, which is noted, or needs parameters
            converters.warm(each, Profile("default"))

"""Wires the parts of an engine: each is given only parts that are made before it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from sie_core.cache import WeightChain, build_chain
from sie_core.catalog import Catalog, Sighting, build_catalog, look
from sie_core.catalog.configs.snapshot import listed_id
from sie_core.catalog.sightings import Sightings
from sie_core.catalog.sources.hub_models import HubModels
from sie_core.contracts import MemoryLimits
from sie_core.cpu_budget import compute_threads, cpu_budget
from sie_core.engine.engine import Engine
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.record import Registry
from sie_core.engine.models.served import Served
from sie_core.engine.pipeline.pipeline import Pipeline
from sie_core.engine.requests.admission import Admission
from sie_core.engine.residency.lifecycle import Lifecycle
from sie_core.engine.residency.loader import Loader
from sie_core.engine.residency.preload import Preload
from sie_core.engine.residency.residency import Residency
from sie_core.engine.residency.rollout import Rollout
from sie_core.engine.residency.unloader import Unloader
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS, Timeouts
from sie_core.memory.checked import make_manager
from sie_core.memory.estimates import Estimates
from sie_core.memory.meter import DeviceMemoryMeter, MemoryThread
from sie_core.plugins import PluginSet
from sie_core.plugins.selection import choose_device, require_attention_backend, require_runner
from sie_core.settings import Settings


def build_engine(
    settings: Settings,
    plugins: PluginSet,
    catalog: Catalog | None = None,
    weights: WeightChain | None = None,
    *,
    gated: bool = False,
    hub: bool = False,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    clock: Callable[[], float] = time.monotonic,
) -> Engine:
    """Make an engine that is not started.

    Args:
        settings: The settings in force.
        plugins: What the plugins registered.
        catalog: The models that are served; None builds it of the settings and plugins.
        weights: Where their weights come from; None asks the tiers of the settings and plugins.
        gated: Whether a gate in front bounds the requests in flight; otherwise the engine itself refuses more than
            `SIE_MAX_CONCURRENT_REQUESTS`.
        hub: Whether models that the catalog has not are looked up in the local cache and on the Hub.
        timeouts: Every wait of the engine; tests shorten some.
        clock: Monotonic seconds.

    Raises:
        PluginError: No such device, scheduler, memory manager, attention backend or runner; names those there are.
        SettingsError: The catalog cannot be built.
    """
    faulty_probe = partial(plugins.faulty, "sie_device_probes")
    device = choose_device(settings.device, plugins.device_probes, faulty_probe)
    require_attention_backend(settings.attention_backend, plugins.runners, device)
    require_runner(settings.runner, plugins.runners)
    catalog = build_catalog(settings, plugins) if catalog is None else catalog
    chain = build_chain(settings, plugins) if weights is None else weights
    metrics = EngineMetrics(detailed=settings.instrumentation)
    chain.found = lambda tier: metrics.tier_hits.labels(tier).inc()
    pressure = settings.memory_pressure_threshold_percent / 100
    served = Served(catalog, HubModels(settings, plugins, device, clock) if hub else None)
    pipeline = Pipeline(device, settings, plugins, timeouts, clock)
    queues, lost = pipeline.device.queue, pipeline.device.mark_lost
    registry = Registry(frozenset(map(listed_id, settings.pinned_models)), clock, timeouts)
    memory = DeviceMemoryMeter(device, plugins.device_probes, settings.memory_limit_bytes, faulty_probe)
    unloader = Unloader(queues, memory, metrics, timeouts)
    manager = make_manager(plugins, settings.memory_manager, MemoryLimits(pressure, settings.idle_evict_s))
    thread = MemoryThread(memory, timeouts.measure_s)
    residency = Residency(manager, thread, registry, unloader, metrics, lost, timeouts, clock)
    threads = compute_threads(cpu_budget())
    loader = Loader(settings, plugins, chain, device, threads, metrics, residency, timeouts, clock)
    lifecycle = Lifecycle(registry, loader, residency, unloader, Estimates(device), queues, metrics, timeouts, clock)

    def look_here() -> dict[str, Sighting]:
        return look(served.catalog.models(), chain.peeking(), plugins, device, timeouts.preview_s)

    return Engine(
        device=device,
        metrics=metrics,
        admission=Admission(None if gated else settings.max_concurrent_requests),
        pipeline=pipeline,
        registry=registry,
        residency=residency,
        lifecycle=lifecycle,
        rollout=Rollout(registry, lifecycle, clock),
        preload=Preload(settings.preload_models, served, lifecycle, clock),
        sightings=Sightings(look_here, served.remember_here, timeouts.sightings_fresh_s, timeouts.first_look_s, clock),
        installed=plugins,
        served=served,
        pressure=pressure,
        timeouts=timeouts,
        clock=clock,
    )

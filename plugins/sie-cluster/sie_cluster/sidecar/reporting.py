"""What a worker tells its peers, put together from what its sidecar and its adapter process know."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from sie_cluster.messages.configs import ConfigState
from sie_cluster.messages.health import ModelReport, Vitals, WorkerReport
from sie_cluster.messages.work import batch_bytes
from sie_cluster.queue.subjects import ANY_PROFILE
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.load import Load


def most_cost(settings: ClusterSettings) -> int:
    """Give the cost that a worker takes at a time."""
    return settings.max_concurrent_batches * batch_bytes(settings)


def own_report(settings: ClusterSettings, worker: str) -> WorkerReport:
    """Say what never changes."""
    profile = settings.own_profile or ANY_PROFILE
    beat_s = settings.health_publish_interval_ms / 1000
    return WorkerReport(worker, settings.pool, settings.bundle, profile=profile, beat_s=beat_s)


def gpus(settings: ClusterSettings, detected: str | None) -> tuple[str | None, int]:
    """Say which GPUs a machine has, and how many it advertises."""
    kind = settings.gpu_type or detected
    told = kind or settings.machine_profile
    return kind and kind.lower(), (1 if told else 0) if settings.gpu_count is None else settings.gpu_count


def full_report(
    own: WorkerReport,
    settings: ClusterSettings,
    vitals: Vitals,
    configs: ConfigState,
    load: Load,
    pulled: frozenset[str],
    behind: tuple[str, ...],
    *,
    up: bool,
    draining: bool,
    held: int,
    batches: float,
) -> WorkerReport:
    """Say what there is to say now."""
    gpu_type, gpu_count = gpus(settings, vitals.gpu_type)
    told = {name: ModelReport("loading") for name in load.slices} | dict(vitals.models)
    models = {
        name: replace(model, queued_cost=load.of_model[name], held=load.slices[name]) for name, model in told.items()
    }
    return replace(
        own,
        gpu_type=gpu_type,
        gpu_count=gpu_count,
        up=up,
        draining=draining,
        saturated=load.saturated,
        held=held,
        queued_cost=load.cost,
        batches=ceil(batches),
        cost_per_s=load.cost_per_s,
        models=models,
        memory_used_bytes=vitals.memory_used_bytes,
        memory_total_bytes=vitals.memory_total_bytes,
        pulled=pulled,
        behind=behind,
        config_hash=configs.hash,
        config_epoch=configs.epoch,
        url=vitals.url,
    )

"""What a worker tells its peers of its machine and its models."""

from __future__ import annotations

from sie_cluster.messages.health import ModelReport, Vitals
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.load import Load


def gpus(settings: ClusterSettings, detected: str | None) -> tuple[str | None, int]:
    """Say which GPUs a machine has, and how many it advertises."""
    kind = settings.gpu_type or detected
    told = kind or settings.machine_profile
    return kind and kind.lower(), (1 if told else 0) if settings.gpu_count is None else settings.gpu_count


def models_of(vitals: Vitals, load: Load) -> dict[str, ModelReport]:
    """Describe the models that its adapter process has or is sent work for, with what is held of each."""
    told = {name: ModelReport("loading") for name in load.slices} | dict(vitals.models)
    return {
        name: model._replace(queued_cost=load.of_model[name], held=load.slices[name]) for name, model in told.items()
    }

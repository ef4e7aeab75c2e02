"""What an adapter process tells its sidecar of its device and its models, for heartbeats."""

from __future__ import annotations

from collections.abc import Container

from sie_core.cluster.messages.health import MOST_REPORTED, ModelReport, Vitals
from sie_core.contracts import EngineStatus, ModelStatus

ROUNDED_BYTES = 16 << 20
"""Memory in use moves all the time; less than this is no news."""
_FIRST = ("loaded", "loading", "unloading", "failed")


def vitals_of(status: EngineStatus, url: str | None = None, preloaded: Container[str] = ()) -> Vitals:
    """Describe an engine; of very many models those that were loaded count most."""
    memory = status.memory
    known = [model for model in status.models if model.serves and model.model_state in _FIRST]
    known.sort(key=lambda model: _FIRST.index(model.model_state))
    return Vitals(
        status.device.gpu_type,
        None if memory is None else memory.used - memory.used % ROUNDED_BYTES,
        None if memory is None else memory.total,
        url,
        {model.id: _report(model, preloaded) for model in known[:MOST_REPORTED]},
    )


def _report(model: ModelStatus, preloaded: Container[str]) -> ModelReport:
    kept = model.pinned or model.id in preloaded
    return ModelReport(model.model_state, model.memory_bytes, model.load_s, tuple(model.loras), kept=kept)

"""What is told of loads and evictions to the trace of the request that caused one, where that is recorded."""

from __future__ import annotations

from typing import Any

from sie_core.engine.models.record import ModelRecord
from sie_core.logs import current_request


def trace_load(record: ModelRecord, started: float, ended: float, error: str | None = None) -> None:
    """Record a load with its stages; `error` is the class of its failure."""
    loaded, download = record.loaded, record.download
    facts: dict[str, Any] = {"model": record.resolved.id, "memory_bytes": record.memory_bytes}
    if loaded is not None:
        facts |= {"family": loaded.family.id, "computed": loaded.facts.computed}
    if download is not None:
        facts["fetched"] = download.describe()
    facts |= {f"load.{stage}_s": round(seconds, 6) for stage, seconds in record.stages_s.items()}
    _apart("load", started, ended, error, facts)


def trace_eviction(evicted: str, reason: str, started: float, ended: float) -> None:
    """Record the eviction of a model or LoRA adapter."""
    _apart("evict", started, ended, None, {"model": evicted, "reason": reason})


def _apart(name: str, started: float, ended: float, error: str | None, facts: dict[str, Any]) -> None:
    fields = current_request.get()
    if fields is not None and fields.trace is not None:
        fields.trace.apart(name, started, ended, [fields.trace], error, **{f"sie.{key}": facts[key] for key in facts})

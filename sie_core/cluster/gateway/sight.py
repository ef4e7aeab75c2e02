"""What a gateway shows of the workers that it hears of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from sie_core.api.ops.health import NO_GPU
from sie_core.cluster.messages.health import ModelReport, WorkerReport
from sie_core.cluster.subjects import ANY_PROFILE
from sie_core.contracts import FleetModel, ModelState, WorkerInfo

Standing = Literal["ready", "saturated", "draining", "away"]
STANDINGS: tuple[Standing, ...] = ("ready", "saturated", "draining", "away")
_ORDER: tuple[ModelState, ...] = ("loaded", "loading", "unloading", "failed")


def standing_of(report: WorkerReport) -> Standing:
    """Say in one word how a worker stands; `away`: it is heard of, and its adapter process takes no work."""
    if report.draining:
        return "draining"
    if not report.up:
        return "away"
    return "saturated" if report.saturated else "ready"


def gpu_of(report: WorkerReport) -> str:
    """Give what clients ask for by `gpu`: the machine profile, else the type of its GPU."""
    return report.profile if report.profile != ANY_PROFILE else report.gpu_type or NO_GPU


def worker_info(report: WorkerReport) -> WorkerInfo:
    """Describe a worker."""
    standing = standing_of(report)
    return WorkerInfo(
        report.worker,
        healthy=standing in ("ready", "saturated"),
        bundle=report.bundle,
        queue_depth=report.held,
        loaded_models=[name for name, model in report.models.items() if model.state == "loaded"],
        url=report.url or "",
        gpu=gpu_of(report),
        gpu_count=report.gpu_count,
        ready_gpu_slots=report.gpu_count if standing == "ready" else 0,
        saturated=report.saturated,
        draining=report.draining,
        pending_cost=report.queued_cost,
        inflight_batches=report.batches,
        memory_used_bytes=report.memory_used_bytes,
        memory_total_bytes=report.memory_total_bytes,
        bundle_config_hash=report.config_hash or "",
        pool_name=report.pool,
        resource_pool=report.resource_pool,
    )


def held_models(reports: Iterable[WorkerReport]) -> list[FleetModel]:
    """List the models that some worker has, loads or failed to load, each in the best state that one has it in."""
    told: dict[str, list[tuple[WorkerReport, ModelReport]]] = defaultdict(list)
    for report in reports:
        for name, model in report.models.items():
            told[name].append((report, model))
    return [_model(name, those) for name, those in sorted(told.items())]


def _model(name: str, told: list[tuple[WorkerReport, ModelReport]]) -> FleetModel:
    state = next(state for state in _ORDER if any(model.state == state for _, model in told))
    those = [report for report, model in told if model.state == state]
    gpus = sorted({gpu_of(report) for report in those} - {NO_GPU})
    return FleetModel(name, state, len(those), gpus, sum(model.held for _, model in told))

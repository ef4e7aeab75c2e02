"""What a gateway shows of its workers and of the models that they have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from sie_cluster.messages.health import WorkerReport
from sie_cluster.queue.subjects import ANY_PROFILE
from sie_core.api.ops.health import ANY_GPU, NO_GPU
from sie_core.contracts import FleetModel, ModelState, WorkerInfo

Standing = Literal["ready", "saturated", "draining", "away"]
STANDINGS: tuple[Standing, ...] = ("ready", "saturated", "draining", "away")
_BEST_FIRST: tuple[ModelState, ...] = ("loaded", "loading", "unloading", "failed")


def standing_of(report: WorkerReport) -> Standing:
    """Say in one word how a worker stands; `away`: it is heard of, and its adapter process takes no work."""
    if report.draining:
        return "draining"
    if not report.up:
        return "away"
    return "saturated" if report.saturated else "ready"


def gpu_of(report: WorkerReport) -> str:
    """Give what clients ask for by `gpu`; a worker without a machine profile serves requests for any."""
    if report.profile != ANY_PROFILE:
        return report.profile
    return ANY_GPU if report.gpu_type else NO_GPU


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
    """List the models that some worker has, loads or failed to load."""
    return fleet_models(
        (name, model.state, gpu_of(report), model.held) for report in reports for name, model in report.models.items()
    )


def fleet_models(told: Iterable[tuple[str, str, str, int]]) -> list[FleetModel]:
    """List models, each in the best state that a worker has it in.

    Args:
        told: Of each model of each worker its name, its state, what clients call the worker's GPU, and the depth of its
            queue there. One that is merely available is left out.
    """
    held: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for name, state, gpu, depth in told:
        if state in _BEST_FIRST:
            held[name].append((state, gpu, depth))
    return [_model(name, those) for name, those in sorted(held.items())]


def _model(name: str, told: list[tuple[str, str, int]]) -> FleetModel:
    best = next(each for each in _BEST_FIRST if any(state == each for state, _, _ in told))
    gpus = [gpu for state, gpu, _ in told if state == best]
    return FleetModel(
        name,
        best,
        len(gpus),
        gpu_types=sorted(set(gpus) - {NO_GPU}),
        total_queue_depth=sum(depth for _, _, depth in told),
    )

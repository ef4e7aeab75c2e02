"""What a gateway shows of the models that its workers have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sie_core.api.ops.health import NO_GPU
from sie_core.contracts import FleetModel, ModelState

_BEST_FIRST: tuple[ModelState, ...] = ("loaded", "loading", "unloading", "failed")


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

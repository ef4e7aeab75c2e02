"""What a gateway's workers can take, and waiting until some can: operations over a client's `health`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sie_sdk._calls.exchange import Operation, Sleep
from sie_sdk.errors import ProvisioningError, RequestError
from sie_sdk.types import CapacityInfo, HealthInfo

Look = Callable[[], Operation[HealthInfo]]
Call = Callable[[float], Operation[object]]
"""Calls a model by one operation, within so many seconds."""

_LOOKED_AT_BY_A_MODEL: Final = ("items", "query", "params.labels", "params.output_schema")
"""Fields that only a loaded model refuses."""


def get_capacity(look: Look, gpu: str | None) -> Operation[CapacityInfo]:
    """Ask once; `gpu` leaves the workers of others out.

    Raises:
        RequestError: `not_gateway`: the server is none.
    """
    return capacity_of((yield from look()), gpu)


def warm_up(calls: Sequence[Call], left_s: Callable[[], float]) -> Operation[None]:
    """Have a model loaded by the first operation that it serves; it refuses the others by naming `model`.

    A model that takes no text, or no labels, is loaded once it says so.

    Raises:
        SIEError: It cannot be loaded in time, or serves none of them.
    """
    for call in calls:
        try:
            yield from call(max(0.0, left_s()))
        except RequestError as error:
            param = (error.param or "") if error.status_code == 400 else ""
            if param.startswith(_LOOKED_AT_BY_A_MODEL):
                return
            if param != "model" or call is calls[-1]:
                raise
        else:
            return


def wait_for_capacity(
    look: Look, gpu: str, left_s: Callable[[], float], poll_interval_s: float
) -> Operation[CapacityInfo]:
    """Ask until a worker takes work.

    Args:
        look: Asks for the health of the server.
        gpu: The machine profile.
        left_s: Says for how many seconds it may go on.
        poll_interval_s: Between two looks.

    Raises:
        ProvisioningError: None does in time.
        RequestError: `not_gateway`: the server is none.
    """
    while True:
        told = yield from get_capacity(look, gpu)
        if told["worker_count"]:
            return told
        if (left := left_s()) <= 0:
            there = ", ".join(told["live_gpu_types"]) or "none"
            raise ProvisioningError(f"no worker of {gpu!r} takes work; of these some do: {there}", gpu=gpu)
        yield Sleep(min(poll_interval_s, left))


def capacity_of(health: HealthInfo, gpu: str | None) -> CapacityInfo:
    """Read what a gateway tells; workers that take no work are listed and not counted."""
    if health.get("type") != "gateway":
        told = f"the server says that it is {health.get('type')!r}, and only a gateway tells capacity"
        raise RequestError(told, code="not_gateway", status_code=200)
    listed = [each for each in health.get("workers", []) if gpu is None or _is_of(each, gpu)]
    healthy = [each for each in listed if each.get("healthy")]
    return {
        "status": health["status"],
        "worker_count": len(healthy),
        "gpu_count": sum(each.get("gpu_count", 0) for each in healthy),
        "ready_gpu_slots": sum(each.get("ready_gpu_slots", 0) for each in healthy),
        "models_loaded": len({model for each in healthy for model in each.get("loaded_models", [])}),
        "configured_gpu_types": health.get("configured_gpu_types", []),
        "live_gpu_types": health.get("live_gpu_types", []),
        "workers": listed,
    }


def _is_of(worker: dict[str, Any], gpu: str) -> bool:
    return str(worker.get("gpu", "")).lower() == gpu.rpartition("/")[2].lower()

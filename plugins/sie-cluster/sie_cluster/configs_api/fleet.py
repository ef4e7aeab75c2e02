"""What the read routes below `/v1/configs` need of a gateway's backend, and what its workers have of a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from sie_bundle.bundles.registry import Registry

from sie_cluster.configs_api.reading import SOURCE, bundles_listing, check_model_id, model_not_found
from sie_cluster.messages.health import WorkerReport
from sie_core.catalog.configs.snapshot import profiles_of


@runtime_checkable
class FleetConfigs(Protocol):
    """An `InferenceBackend` that knows the configs of a cluster. Called on the event loop."""

    def config_service_url(self) -> str | None:
        """Where configs are written; None without a config service."""
        ...

    def config_registry(self) -> Registry:
        """Where every model is served.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`: it is not known yet.
        """
        ...

    def config_sources(self) -> Mapping[str, str]:
        """By model, `api` or `filesystem`."""
        ...

    def config_workers(self) -> Sequence[WorkerReport]:
        """List the workers that were heard of lately."""
        ...


def gateway_bundles(backend: FleetConfigs) -> dict[str, Any]:
    """Answer `GET /bundles`, with the number of workers of each that take work."""
    up = [worker.bundle for worker in backend.config_workers() if worker.up]
    told = bundles_listing(backend.config_registry())
    return {"bundles": [{**each, "connected_workers": up.count(each["bundle_id"])} for each in told["bundles"]]}


def status_answer(backend: FleetConfigs, model_id: str) -> dict[str, Any]:
    """Answer `GET /models/{id}/status`: which workers have the config in force.

    A worker has it once the configs that it serves have the hash of its bundle, at the epoch of the model's last change
    or later. A bundle is `acked` where it has workers and all of them have it; `all_bundles_acked` where that is so of
    every bundle with workers, and there is one.

    Raises:
        InferenceError: `INVALID_INPUT`, `MODEL_NOT_FOUND`.
    """
    registry = backend.config_registry()
    base = check_model_id(model_id).partition(":")[0]
    config = registry.catalog.configs.get(model_id) or registry.catalog.configs.get(base)
    if config is None or model_id not in {config.id, *(f"{config.id}:{name}" for name in config.profiles)}:
        raise model_not_found(registry, model_id)
    routes = [route for each in profiles_of(config) if (route := registry.routes.get(each.id)) is not None]
    names = {name for route in routes for name in route.compatible}
    epoch, workers = registry.epochs.get(config.id, 0), backend.config_workers()
    bundles = [
        _bundle(name, registry.config_hashes[name], epoch, [each for each in workers if each.bundle == name])
        for name in registry.bundles
        if name in names
    ]
    staffed = [each for each in bundles if each["total_eligible_workers"]]
    return {
        "model_id": model_id,
        "config_epoch": registry.catalog.config_epoch or 0,
        "all_bundles_acked": bool(staffed) and all(each["acked"] for each in staffed),
        "no_bundles": not bundles,
        "bundles": bundles,
        "source": backend.config_sources().get(config.id, SOURCE),
    }


def _bundle(name: str, expected: str, epoch: int, workers: Sequence[WorkerReport]) -> dict[str, Any]:
    acked = {each.worker for each in workers if each.config_hash == expected and (each.config_epoch or 0) >= epoch}
    pending = {each.worker for each in workers} - acked
    return {
        "bundle_id": name,
        "expected_bundle_config_hash": expected,
        "total_eligible_workers": len(workers),
        "acked_workers": sorted(acked),
        "pending_workers": sorted(pending),
        "acked": bool(workers) and not pending,
    }

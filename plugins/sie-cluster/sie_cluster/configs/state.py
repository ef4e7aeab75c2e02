"""The configs in force in this process, and what there is to say of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from sie_bundle.bundles.registry import Registry

from sie_cluster.configs.applying import Held
from sie_cluster.configs.client import Epoch
from sie_cluster.configs.metrics import FollowerMetrics


class State:
    """One process's, on one event loop.

    Args:
        metrics: Shows the epoch.
        on_registry: Called with each registry that is put in force.
    """

    def __init__(self, metrics: FollowerMetrics, on_registry: Callable[[Registry], None]) -> None:
        self._metrics, self._on_registry = metrics, on_registry
        self.held: Held | None = None
        self.problem: str | None = "the config service was not asked yet"
        """Why the service is not followed; None where it is."""
        self.turn = asyncio.Lock()
        """Held by who makes the next state of this one."""
        self.moved = asyncio.Event()
        """Set with each state."""

    @property
    def registry(self) -> Registry | None:
        """The configs in force; None before the first are known."""
        return None if self.held is None else self.held.registry

    @property
    def sources(self) -> Mapping[str, str]:
        """By model, `api` or `filesystem`."""
        return {} if self.held is None else self.held.sources

    @property
    def ready_problem(self) -> str | None:
        """Why there are no configs; None where there are."""
        if self.held is not None:
            return None
        return f"no model configs yet: {self.problem}"

    @property
    def note(self) -> str | None:
        """What an operator should know of while requests are answered; None where the service is followed."""
        if self.held is None:
            return self.ready_problem
        if self.problem is not None:
            return f"the config service is not followed, what is known of it is served: {self.problem}"
        if not self.held.agrees:
            return (
                "the model configs read here have other hashes than at the config service: run one release everywhere"
            )
        return None

    def is_of(self, told: Epoch) -> bool:
        """Whether the configs in force are those of an epoch; a service may leave the hashes empty."""
        if self.held is None:
            return False
        mine = self.held.told
        hashes = (
            (told.bundles_hash, mine.bundles_hash),
            (told.bundle_config_hashes_hash, mine.bundle_config_hashes_hash),
        )
        return told.epoch == mine.epoch and all(theirs in ("", ours) for theirs, ours in hashes)

    def put(self, held: Held) -> None:
        """Put configs in force."""
        self.held = held
        self._metrics.epoch.set(held.told.epoch)
        self.moved.set()
        self._on_registry(held.registry)

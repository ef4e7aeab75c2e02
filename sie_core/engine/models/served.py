"""The catalog in force: which models there are. Event loop only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sie_core.catalog import Catalog
from sie_core.catalog.configs.snapshot import listed_id
from sie_core.catalog.sources.hub_models import HubModels, with_found
from sie_core.contracts import InferenceError, ResolvedModel

Follower = Callable[[Catalog, Catalog], None]


class Served:
    """The models that an engine serves.

    Args:
        catalog: The first snapshot.
        hub: Finds models that the catalog has not; None where there are none but its own.
    """

    def __init__(self, catalog: Catalog, hub: HubModels | None = None) -> None:
        self.catalog, self._hub = catalog, hub
        self._followers: list[Follower] = []

    def on_change(self, call: Follower) -> None:
        """Have `call` called with the catalog before and the one after each change."""
        self._followers.append(call)

    def follow(self, catalog: Catalog) -> None:
        """Serve another snapshot from now on."""
        before = self.catalog
        self.catalog = catalog if self._hub is None else with_found(catalog, self._hub.found)
        for call in self._followers:
            call(before, self.catalog)

    def remember_here(self, models: frozenset[str]) -> None:
        """Take which models have their weights on this machine."""
        self.catalog = replace(self.catalog, here=models)

    async def resolve(self, model: str, *, named: bool = False) -> ResolvedModel:
        """Find a model in the catalog, or else look it up; `named` is whether the operator names it, and not a client.

        Raises:
            InferenceError: As `Catalog.resolve` and `HubModels.find`.
        """
        try:
            return self.catalog.resolve(model)
        except InferenceError as error:
            if error.code != "MODEL_NOT_FOUND" or self._hub is None:
                raise
            if await self._hub.find(listed_id(model), self.catalog, named=named) is None:
                raise
        if listed_id(model) not in self.catalog.entries:
            self.follow(self.catalog)
        return self.catalog.resolve(model)

    def close(self) -> None:
        """Look nothing up any more."""
        if self._hub is not None:
            self._hub.close()

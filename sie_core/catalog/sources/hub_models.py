"""Models of the Hub that no config names: looked up when a request, or a setting, first names one.

The local cache is looked into first, so that weights pulled while a server runs are found. Only files that describe the
model are read from the Hub, and a family must claim it before anything large is fetched.
"""

from __future__ import annotations

import asyncio
import ipaddress
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from sie_core.cache import cache_folder
from sie_core.cache.disk.cache import storage_error
from sie_core.cache.hub.tier import HubTier, is_offline
from sie_core.catalog.cards import read_card
from sie_core.catalog.configs.ids import is_model_id
from sie_core.catalog.configs.snapshot import Catalog, profiles_of
from sie_core.catalog.families import choose_family
from sie_core.catalog.sources.from_weights import cached_model, weights_config
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import Device, InferenceError, ModelConfig, ModelLoadError, WeightRequest
from sie_core.contracts.errors import PERMANENT_FAILURES
from sie_core.contracts.model.weights import SAFETENSORS
from sie_core.plugins import PluginSet
from sie_core.settings import Settings

REFUSED_S = 30.0
"""How long a failed look-up is remembered: a repository may be created, or a token be given access, at any time."""
MOST_REFUSED = 1000
"""Failed look-ups that are remembered; clients choose the names."""
LOOKUPS_AT_ONCE = 4
"""Look-ups that ask the Hub at once."""
LOOKUP_WAIT_S = 10.0
"""How long a request waits for a look-up before its client is asked to retry."""


class HubModels:
    """Finds models that no config names, and remembers them. Event loop only.

    Args:
        settings: The settings in force.
        plugins: Whose families may claim a model.
        device: Device of a load.
        clock: Monotonic seconds.
    """

    def __init__(
        self, settings: Settings, plugins: PluginSet, device: Device, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._plugins, self._device, self._clock = settings, plugins, device, clock
        self.found: dict[str, ModelConfig] = {}
        """The models found so far, by id."""
        self._refused: dict[str, tuple[float, ModelLoadError]] = {}
        self._lookups: dict[str, asyncio.Task[ModelConfig | None]] = {}
        self._free = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def find(self, model_id: str, catalog: Catalog, *, named: bool) -> ModelConfig | None:
        """Look up a model outside the catalog.

        Args:
            model_id: Its id.
            catalog: The snapshot in force.
            named: Whether the operator names it, not a client.

        Returns:
            Its config; None if no Hub can have a model of this id, a setting excludes it, or its own config has a
            mistake.

        Raises:
            InferenceError: `MODEL_NOT_FOUND` with how to add the model; `MODEL_LOADING` while the Hub does not answer;
                `MODEL_LOAD_FAILED` if it cannot be served, or the Hub lacks what the operator named.
        """
        kept_out = model_id in catalog.unserved or model_id in catalog.configs or catalog.fault(model_id)
        if not is_hub_id(model_id) or kept_out or self._settings.model_filter:
            return None
        if model_id not in self.found:
            asks = not is_offline(self._settings) and (named or serves_any(self._settings))
            key = model_id if asks else f"{model_id} here"
            lookup = self._lookups.get(key)
            if lookup is None:
                lookup = self._lookups[key] = asyncio.create_task(self._look(model_id, asks=asks))
                lookup.add_done_callback(partial(self._ended, key))
            done, _ = await asyncio.wait([lookup], timeout=LOOKUP_WAIT_S)
            if not done:
                raise InferenceError("MODEL_LOADING", f"{model_id} is being looked up on the Hub.", retry_after_s=5.0)
            try:
                config = lookup.result()
            except ModelLoadError as error:
                raise _refusal(model_id, error, named=named) from None
            if config is None:
                raise InferenceError("MODEL_NOT_FOUND", _how_to_add(model_id, catalog), param="model")
            self.found[model_id] = config
        return self.found[model_id]

    def close(self) -> None:
        """Wait for no look-up any more."""
        for lookup in self._lookups.values():
            lookup.cancel()

    def _ended(self, key: str, lookup: asyncio.Task[ModelConfig | None]) -> None:
        del self._lookups[key]
        if not lookup.cancelled():
            lookup.exception()  # the client may have gone

    async def _look(self, model_id: str, *, asks: bool) -> ModelConfig | None:
        cached = await on_thread("sie-lookup", lambda: self._cached(model_id))
        if cached is not None or not asks:
            return cached
        until, refused = self._refused.get(model_id, (0.0, None))
        if refused is not None and self._clock() < until:
            raise refused
        async with self._free:
            try:
                return await on_thread("sie-lookup", lambda: self._described(model_id))
            except ModelLoadError as error:
                self._refused.pop(model_id, None)
                while len(self._refused) >= MOST_REFUSED:
                    del self._refused[next(iter(self._refused))]
                self._refused[model_id] = (self._clock() + REFUSED_S, error)
                raise

    def _cached(self, model_id: str) -> ModelConfig | None:
        return cached_model(cache_folder(self._settings), model_id, self._plugins.other_weights)

    def _described(self, model_id: str) -> ModelConfig:
        config = weights_config(model_id, hf_id=model_id)
        weights = (*SAFETENSORS, *self._plugins.other_weights)
        try:
            with tempfile.TemporaryDirectory(prefix="sie-card-") as folder:
                HubTier(cache_folder(self._settings)).describe(WeightRequest(model_id, weights=weights), Path(folder))
                choose_family(self._plugins, profiles_of(config)[0], read_card(Path(folder)), self._device)
        except OSError as error:
            raise storage_error("the description of a model", error) from error
        return config


def is_hub_id(name: str) -> bool:
    """Whether a name reads `org/name`, as those of the Hub's repositories do."""
    return is_model_id(name) and name.count("/") == 1 and ":" not in name


def serves_any(settings: Settings) -> bool:
    """Whether clients may have the server fetch any model of the Hub: by the setting, else on loopback only."""
    if settings.serve_any_model is not None:
        return settings.serve_any_model
    try:
        return ipaddress.ip_address(settings.http_host.partition("%")[0]).is_loopback
    except ValueError:
        return settings.http_host == "localhost"


def with_found(catalog: Catalog, found: Mapping[str, ModelConfig]) -> Catalog:
    """Add to a snapshot the models that were found and that it has not."""
    return catalog.plus(config for name, config in found.items() if name not in catalog.unserved)


def _refusal(model_id: str, error: ModelLoadError, *, named: bool) -> InferenceError:
    # For a client, a name that the Hub does not know or that it cannot be asked for is a wrong name.
    if not named and error.failure in ("NOT_FOUND", "NETWORK"):
        return InferenceError("MODEL_NOT_FOUND", f"No model {model_id!r} is served here, and {error}.", param="model")
    return InferenceError(
        "MODEL_LOAD_FAILED",
        f"{model_id} cannot be served: {str(error).removesuffix('.')}. The Hub is asked again after {REFUSED_S:.0f} s.",
        details={"error_class": error.failure, "permanent": error.failure in PERMANENT_FAILURES},
    )


def _how_to_add(model_id: str, catalog: Catalog) -> str:
    organisation, _, name = model_id.partition("/")
    like = catalog.like(model_id, lambda each: each.startswith(f"{organisation}/") or each.endswith(f"/{name}"))
    return (
        f"No model {model_id!r} is served here.{like} To add it, the operator "
        f"runs `sie cache pull {model_id}`, starts with `sie serve {model_id}`, or puts a file of two lines into "
        f"SIE_MODELS_DIR: `sie_id: {model_id}` and `hf_id: {model_id}`.{catalog.remarks}"
    )

"""Knowledge of a model before its load: whether its weights are on this machine, and what their files say."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sie_core.cache import WeightChain, find_weights
from sie_core.cache.formats import unread_weights
from sie_core.catalog.cards import read_card
from sie_core.catalog.families import choose_family
from sie_core.catalog.options.options import check_profile
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import Device, ModelCard, ModelFacts, ModelLoadError, ResolvedModel
from sie_core.contracts.model.weights import SAFETENSORS
from sie_core.plugins import PluginSet
from sie_core.plugins.calls import HungError

log = logging.getLogger(__name__)

PREVIEW_LIMIT_S = 10.0
"""Upper bound in seconds on a preview; the first of a family imports it."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A model that a load finds without fetching anything."""

    tier: str | None = None
    """The tier that has the weights; None if it needs none."""
    folder: Path | None = None
    facts: ModelFacts | None = None
    """The facts that the model's family expects of a load; None if it does not say."""


def look(
    models: Iterable[ResolvedModel],
    chain: WeightChain,
    plugins: PluginSet,
    device: Device,
    preview_s: float = PREVIEW_LIMIT_S,
) -> dict[str, Sighting]:
    """Look for the weights of models on this machine, and read their files; return the sightings by id."""
    seen = {model.id: see(model, chain, plugins, device, preview_s) for model in models}
    return {name: sighting for name, sighting in seen.items() if sighting is not None}


def see(
    model: ResolvedModel,
    chain: WeightChain,
    plugins: PluginSet,
    device: Device,
    preview_s: float = PREVIEW_LIMIT_S,
) -> Sighting | None:
    """Look for the weights of one model; None if a load would have to fetch them or could not use them.

    Its family's preview may take `preview_s` seconds.
    """
    if model.config.weightless:
        return Sighting()
    found = find_weights(model.config, chain)
    if found is None:
        return None
    tier, folder = found
    try:
        card = read_card(folder)
    except ModelLoadError:
        return Sighting(tier, folder)  # a load will report their fault
    if _unread(model, folder, chain) is not None:
        return None
    return Sighting(tier, folder, _preview(model, card, plugins, device, preview_s))


def fault_of(model: ResolvedModel, chain: WeightChain, plugins: PluginSet, device: Device) -> str | None:
    """Explain why weights on this machine cannot be served, as far as their small files tell; None if nothing is wrong.

    Returns None for weights that are not here.
    """
    found = find_weights(model.config, chain)
    if found is None:
        return None
    unread = _unread(model, found[1], chain)
    try:
        family = choose_family(plugins, model, read_card(found[1]), device).family
        check_profile(family, model.profile, plugins.postprocessors, model.config, plugins.option_names())
    except ModelLoadError as error:
        return unread or str(error)
    return unread


def _unread(model: ResolvedModel, folder: Path, chain: WeightChain) -> str | None:
    return unread_weights(f"The folder of {model.id}", folder, (*SAFETENSORS, *chain.others))


class Sightings:
    """The result of the last look at the weights on this machine. Looks again without holding up requests.

    Used on the event loop alone.

    Args:
        look: Returns the sightings of all models; called on its own thread.
        tell: Called after each look with the ids of the models whose weights are here.
        fresh_s: How long the result of a look is used: other processes add and remove weights without notice.
        wait_s: How long `settled` waits at most: a disk may hang.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        look: Callable[[], Mapping[str, Sighting]],
        tell: Callable[[frozenset[str]], None],
        fresh_s: float,
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._tell = look, tell
        self._fresh_s, self._wait_s = fresh_s, wait_s
        self._clock = clock
        self._seen: Mapping[str, Sighting] = {}
        self._looked_at: float | None = None
        self._wanted = False
        self._looking: asyncio.Task[None] | None = None

    def of(self, model: str) -> Sighting | None:
        """Return the last sighting of a model; None if its weights are elsewhere."""
        return self._seen.get(model)

    def seen(self) -> Iterable[str]:
        """Name the models whose weights were seen."""
        return self._seen.keys()

    def refresh(self) -> None:
        """Start another look if the last one is no longer fresh. Returns at once."""
        if self._looked_at is not None and self._clock() - self._looked_at > self._fresh_s:
            self.again()

    def again(self) -> None:
        """Start a look; if one is under way, another follows it."""
        self._wanted = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._until_fresh())

    async def settled(self) -> None:
        """Wait until no look is under way, for a bounded time."""
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=self._wait_s)

    def close(self) -> None:
        """Cancel the look under way."""
        if self._looking is not None:
            self._looking.cancel()

    async def _until_fresh(self) -> None:
        while self._wanted:
            self._wanted = False
            try:
                self._seen = await on_thread("sie-sightings", self._look)
            except Exception:
                log.exception("the weights on this machine could not be looked at; what was seen before is told")
            self._looked_at = self._clock()
            self._tell(frozenset(self._seen))


def _preview(
    model: ResolvedModel, card: ModelCard, plugins: PluginSet, device: Device, limit_s: float
) -> ModelFacts | None:
    try:
        family = choose_family(plugins, model, card, device).family
    except ModelLoadError:
        return None
    if family.preview is None:
        return None
    module, _, name = family.preview.partition(":")
    error: BaseException | None = None
    try:
        facts = plugins.calls.within(
            f"preview-{family.id}",
            limit_s,
            lambda: getattr(importlib.import_module(module), name)(plugins.informed(card), model.config),
        )
        if facts is None or isinstance(facts, ModelFacts):
            return facts
        problem = f"returned a {type(facts).__name__} from `preview`, neither None nor a ModelFacts"
    except ModelLoadError:
        return None
    except HungError as hung:
        problem = f"{hung} from `preview`"
    except (Exception, SystemExit) as raised:
        problem, error = f"failed in `preview` ({type(raised).__name__})", raised
    plugins.faulty("sie_model_families", family.id, problem, error)
    return None

"""The chain of weight tiers, nearest first, and the error when none has the model."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Self

from sie_core.cache.disk.cache import DiskCache, disk_cache
from sie_core.cache.disk.leases import Lease
from sie_core.cache.formats import broken_safetensors, unread_weights
from sie_core.contracts import (
    ModelConfig,
    ModelLoadError,
    PluginError,
    TierContext,
    WeightRequest,
    WeightTier,
    WeightTierFactory,
)
from sie_core.contracts.model.weights import SAFETENSORS, FillableTier, PeekingTier, PicklesMissing, Progress
from sie_core.plugins import PluginSet
from sie_core.plugins.interfaces.signatures import require
from sie_core.settings import Settings, SettingsError

HOOK = "sie_weight_tiers"

log = logging.getLogger(__name__)


Report = Callable[[str, str, BaseException | None], str]

SILENT_S = 30.0
"""Seconds without an answer or progress after which the farther tiers are asked meanwhile."""


class HeldWeights:
    """A local folder of weights that no process removes until `release`, or until this object is freed."""

    def __init__(self, folder: Path, lease: Lease | None) -> None:
        self.folder = folder
        self.tokenizers: dict[str, HeldWeights] = {}
        """Repositories whose small files belong to the model, held with it."""
        self._lease = lease

    @property
    def tokenizer_folders(self) -> dict[str, Path]:
        """The folders of `tokenizers`, as a load is told them."""
        return {name: each.folder for name, each in self.tokenizers.items()}

    def release(self) -> None:
        """Allow the folders to be removed. A second call does nothing."""
        if self._lease is not None:
            self._lease.release()
        for each in self.tokenizers.values():
            each.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Call:
    """One tier's `fetch`, on a thread of its own, so that it may hang; a tier that `peeks` answers a peek at once."""

    def __init__(self, tier: WeightTier, request: WeightRequest) -> None:
        self._moved_at = time.monotonic()
        self._outcome: Future[Path | None] = Future()
        self._tier, self._request = tier, request
        self._at_once = request.peek and getattr(tier, "peeks", False) is True
        if self._at_once:
            self._work()
            return
        told = request.progress

        def moved(done: int, total: int) -> None:
            self._moved_at = time.monotonic()
            if told is not None:
                told(done, total)

        self._request = replace(request, progress=moved)
        threading.Thread(target=self._work, name=f"sie-tier-{tier.name}", daemon=True).start()

    def ends(self, silent_s: float = math.inf) -> bool:
        """Wait until it ends; False once it reported no progress for `silent_s`."""
        while not self._outcome.done():
            left_s = self._moved_at + silent_s - time.monotonic()
            if left_s <= 0:
                return False
            wait([self._outcome], timeout=None if math.isinf(left_s) else left_s)
        return True

    def result(self) -> Path | None:
        """Return what `fetch` returned, or raise what it raised. Only called once."""
        try:
            return self._outcome.result()
        finally:
            del self._outcome  # a kept exception would hold this call by its traceback

    def _work(self) -> None:
        try:
            self._outcome.set_result(self._tier.fetch(self._request))
        except BaseException as error:
            if self._at_once and isinstance(error, KeyboardInterrupt):
                raise
            self._outcome.set_exception(error)


class WeightChain:
    """Asks tiers in order until one has the weights.

    Args:
        tiers: The nearest first.
        cache: The local cache, which removes nothing that is held; None if it never removes anything.
        report: Called when a tier breaks its contract, with its name, its fault and the exception. Returns the names of
            tier and plugin.
        others: Patterns of weight files other than safetensors that some family reads. They are requested if a
            repository has no safetensors.
    """

    def __init__(
        self,
        tiers: Sequence[WeightTier],
        cache: DiskCache | None = None,
        report: Report | None = None,
        others: tuple[str, ...] = (),
    ) -> None:
        self.tiers = tuple(tiers)
        self.cache = cache
        self.others = others
        self._report = report or _log
        self.found: Callable[[str], object] = lambda tier: None
        """Called with the name of the tier that had what was fetched, from any thread."""
        self._fills: list[threading.Thread] = []
        self._hung: dict[str, _Call] = {}
        """The peeks that did not end, by the names of their tiers."""

    def fetch(self, request: WeightRequest) -> Path:
        """Return a local folder of the weights. It is not held: it may be removed to make room.

        Raises:
            ModelLoadError: As `hold`.
        """
        with self.hold(request) as held:
            return held.folder

    def hold(self, request: WeightRequest) -> HeldWeights:
        """Return a local folder of the weights, held. Runs on a loader thread and may take minutes.

        Raises:
            ModelLoadError: No tier has them. The message names each tier with its reason; the class is that of the
                farthest tier that failed, else `NOT_FOUND`.
        """
        # No lock file for a repository that does not exist: clients choose ids too, and lock files are never removed.
        there = self.cache is not None and self.cache.has(request.repo_id)
        lease = self.cache.use(request.repo_id) if self.cache is not None and there else None
        held = HeldWeights(self._ask_twice(request), lease)
        if self.cache is None or not self._is_cached(held.folder):
            held.release()
        elif lease is None:
            held = HeldWeights(held.folder, self.cache.use(request.repo_id))
            if not held.folder.is_dir():
                return self.hold(request)
        return held

    def _ask_twice(self, request: WeightRequest) -> Path:
        """Ask for safetensors, or what else is requested; for other formats if there are no safetensors."""
        try:
            return self._ask(request)
        except ModelLoadError as error:
            if not self._has_others(request):
                raise
            # A tier that cannot be reached now is not asked again at once.
            near = self if error.failure in ("CONFIG", "NOT_FOUND") else self.peeking()
            with contextlib.suppress(ModelLoadError):
                return near._ask(replace(request, weights=self.others))
            raise

    def _has_others(self, request: WeightRequest) -> bool:
        return bool(self.others) and request.weights == SAFETENSORS

    def _ask(self, request: WeightRequest) -> Path:
        """Ask tier by tier. One that keeps silent is passed over, and waited for only if no other has the weights."""
        said: dict[str, ModelLoadError | None] = {}
        partly: list[WeightTier] = []
        silent: list[tuple[int, WeightTier, _Call]] = []
        started = time.monotonic()

        def answer(place: int, tier: WeightTier, call: _Call) -> Path | None:
            try:
                folder = self._checked(tier, call)
            except ModelLoadError as error:
                if error.failure == "CORRUPT":
                    log.warning("weights of %s: tier %s: %s", request.repo_id, tier.name, error)
                if isinstance(error, PicklesMissing):
                    partly.append(tier)
                said[tier.name] = error
                return None
            if folder is None:
                said[tier.name] = None
                return None
            seconds = time.monotonic() - started
            log.debug("weights of %s: tier %s, %.1f s, %s", request.repo_id, tier.name, seconds, folder)
            self.found(tier.name)
            self._fill(self.tiers[:place], request, folder)
            return folder

        for place, tier in enumerate(self.tiers):
            call = _Call(tier, request)
            if not call.ends(SILENT_S):
                self._tell_silent(tier, request, last=place == len(self.tiers) - 1)
                silent.append((place, tier, call))
            elif folder := answer(place, tier, call):
                return folder
        for place, tier, call in silent:
            call.ends()
            if folder := answer(place, tier, call):
                return folder
        for tier in partly:
            folder = self._fetch(tier, replace(request, pickles=()))
            if folder is not None:
                log.info("weights of %s: tier %s, without %s", request.repo_id, tier.name, ", ".join(request.pickles))
                self.found(tier.name)
                return folder
        raise _nobody(request, list(said.items()))

    def _tell_silent(self, tier: WeightTier, request: WeightRequest, *, last: bool) -> None:
        told = f"has not answered `fetch` for {SILENT_S:g} s"
        if last:  # it may rightly be slow: another process may be fetching the same weights
            log.warning("weights of %s: the weight tier %r %s", request.repo_id, tier.name, told)
        else:
            self._report(tier.name, f"{told} and is passed over", None)

    def _fetch(self, tier: WeightTier, request: WeightRequest) -> Path | None:
        """Ask one tier to its end; breaking its contract counts as its failure.

        Raises:
            ModelLoadError: As the tier; `UNKNOWN` if it fails otherwise.
        """
        call = _Call(tier, request)
        call.ends()
        return self._checked(tier, call)

    def _checked(self, tier: WeightTier, call: _Call) -> Path | None:
        try:
            folder = call.result()
            if folder is not None and not isinstance(folder, Path):
                raise TypeError(f"fetch returned {folder!r:.100}, which is no Path")
            # A folder of the cache may be removed at any time, which `hold` sees.
            if folder is None or self._is_cached(folder) or folder.is_dir():
                return folder
            raise NotADirectoryError(f"fetch returned {folder}, which is no folder")
        except ModelLoadError:
            raise
        except BaseException as error:  # of the tier's own thread, so no Ctrl-C of ours
            who = self._report(tier.name, f"failed in `fetch` ({type(error).__name__})", error)
            raise ModelLoadError("UNKNOWN", f"{who} failed ({type(error).__name__}); the log says more") from error

    def _is_cached(self, folder: Path) -> bool:
        return self.cache is not None and folder.is_relative_to(self.cache.folder)

    def _fill(self, nearer: Sequence[WeightTier], request: WeightRequest, folder: Path) -> None:
        """Offer weights of a far tier to the nearer ones, which lacked them, on a thread during the load."""
        takers = [tier for tier in nearer if isinstance(tier, FillableTier)]
        if takers:
            lease = None if self.cache is None else self.cache.use(request.repo_id)
            fill = threading.Thread(
                target=_offer, args=(takers, request, folder, lease), name=f"sie-fill-{request.repo_id}", daemon=True
            )
            self._fills = [each for each in self._fills if each.is_alive()] + [fill]
            fill.start()

    def fill(self, request: WeightRequest, folder: Path) -> list[str]:
        """Offer weights to every storing tier; return the names of those that stored them."""
        return [tier.name for tier in self.tiers if isinstance(tier, FillableTier) and tier.fill(request, folder)]

    def wait_for_fills(self) -> None:
        """Wait until the nearer tiers have stored the fetched weights."""
        for each in self._fills:
            each.join()

    def peeking(self) -> WeightChain:
        """Return a chain of only those tiers that answer at once, for regular looks at every model."""
        peeking = [tier for tier in self.tiers if isinstance(tier, PeekingTier) and tier.peeks]
        chain = WeightChain(peeking, report=self._report, others=self.others)
        chain.found = self.found
        return chain

    def find(self, request: WeightRequest) -> tuple[str, Path] | None:
        """Return the tier and the folder that hold the weights on this machine already; never downloads."""
        peek = WeightRequest(
            request.repo_id, request.revision, peek=True, pickles=request.pickles, weights=request.weights
        )
        asked = [peek, replace(peek, weights=self.others)] if self._has_others(request) else [peek]
        for each, tier in product(asked, self.tiers):
            if (folder := self._peek(tier, each)) is not None:
                return tier.name, folder
        return None

    def _peek(self, tier: WeightTier, request: WeightRequest) -> Path | None:
        hung = self._hung.get(tier.name)
        if hung is not None and not hung.ends(0.0):
            return None
        call = _Call(tier, request)
        if not call.ends(SILENT_S):
            self._hung[tier.name] = call
            self._tell_silent(tier, request, last=False)
            return None
        try:
            return self._checked(tier, call)
        except ModelLoadError:
            return None


def build_chain(settings: Settings, plugins: PluginSet) -> WeightChain:
    """Make the chain of every registered tier that takes part under these settings.

    Raises:
        PluginError: A setting names a store that cannot be used.
    """
    context = TierContext(settings, plugins.weight_packages, plugins.object_stores)
    factories = sorted(plugins.weight_tiers, key=lambda factory: (factory.order, factory.name))
    tiers = [tier for factory in factories if (tier := _create(factory, context, plugins)) is not None]
    return WeightChain(tiers, disk_cache(settings), partial(plugins.faulty, HOOK), plugins.other_weights)


def _create(factory: WeightTierFactory, context: TierContext, plugins: PluginSet) -> WeightTier | None:
    """Make a tier. A tier that fails is reported and left out, unless a setting that names it is unusable."""
    try:
        tier = factory.create(context)
        if tier is not None:
            require(tier, FillableTier if isinstance(tier, FillableTier) else WeightTier)
    except (PluginError, SettingsError):
        raise
    except (Exception, SystemExit) as error:
        plugins.faulty(HOOK, factory.name, f"cannot be made and is passed over ({type(error).__name__})", error)
        return None
    return tier


def fetch_weights(config: ModelConfig, chain: WeightChain) -> Path | None:
    """Return the folder of a model's weights. It is not held: it may be removed to make room.

    Raises:
        ModelLoadError: As `hold_weights`.
    """
    held = hold_weights(config, chain)
    if held is None:
        return None
    with held:
        return held.folder


def hold_weights(
    config: ModelConfig,
    chain: WeightChain,
    progress: Progress | None = None,
    weights: tuple[str, ...] = SAFETENSORS,
) -> HeldWeights | None:
    """Return a model's weights, held: its own `weights_path`, else those of the chain; None if weightless.

    `progress` is called during a download; `weights` are patterns of the files that hold them.

    Raises:
        ModelLoadError: `NOT_FOUND` if the named folder is missing, `CONFIG` if it holds pickled weights only, `CORRUPT`
            if one of its files is truncated, or whatever the chain raises.
    """
    if config.weightless:
        return None
    if config.weights_path is None:
        return chain.hold(replace(weight_request(config), progress=progress, weights=weights))
    folder = Path(config.weights_path)
    if not folder.is_dir():
        raise ModelLoadError("NOT_FOUND", f"The `weights_path` of {config.id} is not a folder on this machine.")
    if fault := unread_weights(f"The `weights_path` of {config.id}", folder, (*weights, *chain.others), config.pickles):
        raise ModelLoadError("CONFIG", fault)
    for file in sorted(folder.rglob("*.safetensors")):
        if fault := broken_safetensors(file):
            name = file.relative_to(folder).as_posix()
            raise ModelLoadError(
                "CORRUPT", f"{name} in the `weights_path` of {config.id} {fault}; copy it there again."
            )
    return HeldWeights(folder, None)


def find_weights(config: ModelConfig, chain: WeightChain) -> tuple[str, Path] | None:
    """Return the location of a model's weights on this machine, with the tier's name (`weights_path` for its own
    folder).
    """
    if config.weightless:
        return None
    if config.weights_path is None:
        return chain.find(weight_request(config))
    folder = Path(config.weights_path)
    return ("weights_path", folder) if folder.is_dir() else None


def weight_request(config: ModelConfig) -> WeightRequest:
    """Return the repository and revision that a config names."""
    return WeightRequest(config.hf_id or config.id, config.hf_revision, pickles=tuple(config.pickles))


def _log(name: str, problem: str, error: BaseException | None) -> str:
    log.error("the weight tier %r %s", name, problem, exc_info=error)
    return f"the weight tier {name!r}"


def _nobody(request: WeightRequest, said: Sequence[tuple[str, ModelLoadError | None]]) -> ModelLoadError:
    lines = "; ".join(f"{name}: {error or 'does not have it'}" for name, error in said) or "no tier is configured"
    remedy = "Put a folder with its weights below SIE_MODELS_DIR, or fill the local cache (`sie cache pull`)"
    if all(name != "hub" for name, _ in said):
        remedy += ", or allow the Hub to be asked (SIE_HF_FALLBACK=true)."
    else:
        remedy += "; behind a proxy set HTTPS_PROXY, for a mirror HF_ENDPOINT."
    failed = [error for _, error in said if error is not None and error.failure != "NOT_FOUND"]
    failure = failed[-1].failure if failed else "NOT_FOUND"
    revision = f" at revision {request.revision}" if request.revision else ""
    return ModelLoadError(failure, f"No weights of {request.repo_id}{revision}: {lines}. {remedy}")


def _offer(takers: Sequence[FillableTier], request: WeightRequest, folder: Path, lease: Lease | None) -> None:
    for tier in takers:
        try:
            if tier.fill(request, folder):
                log.info("weights of %s: stored in tier %s", request.repo_id, tier.name)
        except ModelLoadError as error:
            log.warning("weights of %s: not stored in tier %s: %s", request.repo_id, tier.name, error)
        except Exception:
            log.exception("weights of %s: storing them in tier %s failed", request.repo_id, tier.name)
    if lease is not None:
        lease.release()

"""Has the family of a fetched model load it; if it finds the weights unfit, asks the next claiming family."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sie_core.catalog.families import choose_next
from sie_core.catalog.fetching import FetchedModel
from sie_core.catalog.options.options import check_profile
from sie_core.contracts import Adapter, FamilyUnfitError, LoadContext, ModelFamily, ModelLoadError
from sie_core.plugins import PluginSet
from sie_core.plugins.interfaces.signatures import mismatches, unfit
from sie_core.plugins.interfaces.versions import PAGE

log = logging.getLogger(__name__)

RAISED_BY = "raised by"
"""The first words of a note on an exception of a load: the family and its plugin follow."""
StageReport = Callable[[str, float], None]


def load_adapter(
    fetched: FetchedModel, context: LoadContext, plugins: PluginSet, report: StageReport = lambda stage, seconds: None
) -> tuple[Adapter, FetchedModel]:
    """Load a fetched model; return it with the family that loaded it.

    Args:
        fetched: The model, and the families that claim its weights.
        context: The argument of a family's `load`.
        plugins: The plugins of these families.
        report: Called with each stage and its seconds.

    Raises:
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
        DeviceLost: Only a new process gets the device back.
    """
    context = replace(context, unfit=fetched.choice.unfit)
    while True:
        family = fetched.choice.family
        try:
            return _load(family, context, plugins, report), fetched
        except FamilyUnfitError as error:
            unfit = f"{context.unfit} {error}" if context.unfit else str(error)
            following = choose_next(plugins, fetched.resolved, fetched.choice, unfit)
        except ModelLoadError as error:
            if context.unfit is None or str(error) in context.unfit:
                raise
            raise ModelLoadError(error.failure, f"{context.unfit} {error}") from error
        log.warning("%s: %s The family %s is asked next.", fetched.resolved.id, unfit, following.family.id)
        ignored = check_profile(
            following.family,
            fetched.resolved.profile,
            plugins.postprocessors,
            fetched.resolved.config,
            plugins.option_names(),
        )
        fetched, context = replace(fetched, choice=following, ignored=ignored), replace(context, unfit=unfit)


@contextmanager
def timed(stage: str, report: StageReport) -> Iterator[None]:
    """Report a stage that ended, with its seconds."""
    started = time.monotonic()
    yield
    report(stage, time.monotonic() - started)


def _load(family: ModelFamily, context: LoadContext, plugins: PluginSet, report: StageReport) -> Adapter:
    who = plugins.called("sie_model_families", family.id)
    with timed("import", report):
        load = _import_load(family)
    if isinstance(load, type) and issubclass(load, Adapter):  # as plugins were written before release 1.0
        load = getattr(load, "load", load)
    if fault := unfit(load, ("context",)):
        raise ModelLoadError("DEPENDENCY", f"{family.load} of {who} {fault}; {PAGE} says what is called.")
    try:
        with timed("load", report):
            adapter = load(context)
    except Exception as error:
        error.add_note(f"{RAISED_BY} {who}")
        raise
    if not isinstance(adapter, Adapter):
        raise ModelLoadError("DEPENDENCY", f"{family.load} of {who} returned no `Adapter`.")
    if faults := "; ".join(mismatches(adapter, Adapter)):
        raise ModelLoadError("DEPENDENCY", f"The adapter of {who} does not fit this sie-core: {faults}.")
    return adapter


def _import_load(family: ModelFamily) -> Any:
    module, _, name = family.load.partition(":")
    try:
        load: Any = getattr(importlib.import_module(module), name)
    except ImportError as error:
        log.exception("%s of the family %s cannot be imported", family.load, family.id)
        missing = f"the module {error.name!r}" if error.name else "a module"
        raise ModelLoadError(
            "DEPENDENCY", f"The family {family.id!r} cannot import {missing}; install what its plugin needs."
        ) from error
    except AttributeError as error:
        raise ModelLoadError(
            "DEPENDENCY", f"The family {family.id!r} names {family.load} as its `load`, which does not exist."
        ) from error
    return load

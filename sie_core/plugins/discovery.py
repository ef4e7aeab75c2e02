"""Finds the installed plugins, collects the registrations of each, and merges them.

Each plugin is loaded and checked on its own, so that a broken one is reported and affects no other. Nothing is cached
between two calls, and no model library is imported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from packaging.utils import canonicalize_name

from sie_core import __version__
from sie_core.contracts import PluginError
from sie_core.plugins.asking import BrokenPlugin, Registered, ask
from sie_core.plugins.calls import HungError
from sie_core.plugins.importing import Imports, begin_imports, deprecations
from sie_core.plugins.model import PluginReport, PluginSet, PluginState
from sie_core.plugins.registration import REGISTRATIONS
from sie_core.settings import Settings

ENTRY_POINT_GROUP = "sie"
# fmt: off
OF_THIS_PROJECT = frozenset({
    "sie-bundle", "sie-cluster", "sie-cpu", "sie-fake", "sie-flash", "sie-gliner", "sie-kit", "sie-nats",
    "sie-objectstore", "sie-pytorch", "sie-sentence-transformers", "sie-sglang", "sie-text",
})
# fmt: on
"""Distributions that keep their names where a stranger's plugin has the same, like what is built in."""

logger = logging.getLogger("sie_core.plugins")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A plugin that may be loaded."""

    name: str
    distribution: str
    version: str
    module: str
    load: Callable[[], object]
    builtin: bool = False

    def __str__(self) -> str:
        return f"plugin {self.name!r} of {self.distribution} {self.version}"

    @property
    def rank(self) -> int:
        """Its place where names clash: the highest keeps the name."""
        return 2 if self.builtin else int(canonicalize_name(self.distribution) in OF_THIS_PROJECT)

    def chosen_by(self, names: Sequence[str]) -> bool:
        """Whether a setting names it, by entry point or by distribution."""
        if self.name in names:
            return True
        return not self.builtin and canonicalize_name(self.distribution) in map(canonicalize_name, names)


@dataclass(slots=True)
class _Outcome:
    """The result of loading a candidate."""

    candidate: _Candidate
    state: PluginState = "active"
    cause: str | None = None
    registered: Registered = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    """What its import changed of the process."""
    deprecated: tuple[str, ...] = ()


def discover(settings: Settings, builtins: Iterable[object] = ()) -> PluginSet:
    """Load every plugin and collect what they register.

    Args:
        settings: `plugins`, `plugins_blocked`, `strict_plugins` and `trace_hooks` are read.
        builtins: Plugin modules that need no entry point, e.g. `sie_core.defaults.BUILTINS`; they come first.

    Raises:
        PluginError: A setting names an unknown plugin, a built-in is broken, or any plugin is and `SIE_STRICT_PLUGINS`
            is set.
    """
    candidates = [_builtin(module) for module in builtins] + _installed()
    _check_names(settings, candidates)
    imports = begin_imports(settings)
    outcomes = [_consider(candidate, settings, imports) for candidate in candidates]
    _break_clashes(outcomes)
    _report_broken(outcomes, strict=settings.strict_plugins)
    return _assemble(outcomes)


def _builtin(module: Any) -> _Candidate:
    name = module.__name__
    return _Candidate(name, "sie-core", __version__, name, lambda: module, builtin=True)


def _installed() -> list[_Candidate]:
    found = [_candidate(entry_point) for entry_point in entry_points(group=ENTRY_POINT_GROUP)]
    return sorted(found, key=lambda candidate: (candidate.distribution, candidate.name))


def _candidate(entry_point: EntryPoint) -> _Candidate:
    dist = entry_point.dist
    distribution = (dist.name if dist else None) or "unknown"
    version = (dist.version if dist else None) or "unknown"
    return _Candidate(entry_point.name, distribution, version, entry_point.value, entry_point.load)


def _check_names(settings: Settings, candidates: Sequence[_Candidate]) -> None:
    """Refuse an allow-list with plugins that are not installed; for a block-list that is logged."""
    installed = ", ".join(candidate.name for candidate in candidates if not candidate.builtin) or "none"
    for name in settings.plugins:
        if not any(candidate.chosen_by((name,)) for candidate in candidates):
            raise PluginError(
                f"SIE_PLUGINS names {name!r}, which is not installed; installed plugins: {installed}. "
                f"Install the distribution that has it, or take the name out."
            )
    for name in settings.plugins_blocked:
        if not any(candidate.chosen_by((name,)) for candidate in candidates):
            logger.warning("SIE_PLUGINS_BLOCKED names %r, which is not installed; installed: %s", name, installed)


def _consider(candidate: _Candidate, settings: Settings, imports: Imports) -> _Outcome:
    if candidate.chosen_by(settings.plugins_blocked):
        return _Outcome(candidate, "blocked", "SIE_PLUGINS_BLOCKED names it")
    if settings.plugins and not candidate.builtin and not candidate.chosen_by(settings.plugins):
        return _Outcome(candidate, "blocked", "SIE_PLUGINS does not name it")
    changes: list[str] = []
    load = partial(ask, candidate.load, candidate.module, str(candidate), trace=settings.trace_hooks)
    try:
        with deprecations() as deprecated:
            if candidate.builtin:
                registered = load()
            else:
                registered, changes = imports.run(str(candidate), candidate.name, load)
    except HungError as error:
        cause = f"its import {error}; set SIE_PLUGINS_BLOCKED={candidate.name} to start without waiting for it"
        return _Outcome(candidate, "broken", cause)
    except BrokenPlugin as error:
        logger.debug("%s is broken", candidate, exc_info=error.__cause__)
        return _Outcome(candidate, "broken", str(error))
    return _Outcome(candidate, registered=registered, changes=changes, deprecated=tuple(deprecated))


def _report_broken(outcomes: Sequence[_Outcome], strict: bool) -> None:
    broken = [outcome for outcome in outcomes if outcome.state == "broken"]
    for outcome in broken:
        logger.warning("%s is broken and not used: %s", outcome.candidate, outcome.cause)
    fatal = [outcome for outcome in broken if strict or outcome.candidate.builtin]
    if fatal:
        told = "\n".join(f"{outcome.candidate} is broken: {outcome.cause}" for outcome in fatal)
        names = ",".join(outcome.candidate.name for outcome in fatal)
        raise PluginError(f"{told}\nMend it, uninstall it or set SIE_PLUGINS_BLOCKED={names}.")


def _break_clashes(outcomes: Sequence[_Outcome]) -> None:
    """Break plugins with a name of others: the core and this project keep theirs, two strangers both lose."""
    for hook, row in REGISTRATIONS.items():
        owners: dict[str, list[_Outcome]] = {}
        for outcome in outcomes if row.exclusive else ():
            for name, _ in outcome.registered.get(hook, ()):
                owners.setdefault(name, []).append(outcome)
        for name, several in owners.items():
            ranks = [each.candidate.rank for each in several]
            for outcome in several if len(several) > 1 else ():
                if outcome.candidate.rank < max(ranks) or ranks.count(max(ranks)) > 1:
                    others = [each.candidate for each in several if each is not outcome]
                    outcome.state, outcome.cause = "broken", _clash(f"{row.noun} {name!r}", outcome.candidate, others)
    for outcome in outcomes:
        if outcome.state == "broken":
            outcome.registered, outcome.changes = {}, []


def _clash(what: str, one: _Candidate, others: Sequence[_Candidate]) -> str:
    told = " and ".join(f"{each} ({each.module})" for each in others)
    blocked = (each.name if each.name != one.name or each.builtin else each.distribution for each in others)
    choice = " or ".join(f"SIE_PLUGINS_BLOCKED={each}" for each in blocked)
    return (
        f"{one.module} registers the {what}, and so does {told}. Rename it, uninstall one, or set {choice} to keep it."
    )


def _assemble(outcomes: Sequence[_Outcome]) -> PluginSet:
    fields: dict[str, Any] = {}
    for hook, row in REGISTRATIONS.items():
        pairs = [pair for outcome in outcomes for pair in outcome.registered.get(hook, ())]
        fields[row.field] = dict(pairs) if row.by_name else tuple(item for _, item in pairs)
    plugins = PluginSet(reports=tuple(map(_report, outcomes)), **fields)
    for outcome, report in zip(outcomes, plugins.reports, strict=True):
        for change in outcome.changes:
            plugins.faults.add(str(report), change)
        for each in outcome.deprecated:
            logger.warning("%s: %s", report, each)
    return plugins


def _report(outcome: _Outcome) -> PluginReport:
    candidate = outcome.candidate
    registers = {hook: tuple(name for name, _ in pairs) for hook, pairs in outcome.registered.items()}
    return PluginReport(
        name=candidate.name,
        distribution=candidate.distribution,
        version=candidate.version,
        module=candidate.module,
        state=outcome.state,
        cause=outcome.cause,
        registers=registers,
        deprecated=outcome.deprecated,
    )

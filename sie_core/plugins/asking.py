"""Loads one plugin, checks it and calls its hooks, in a plugin manager of its own.

So a broken plugin cannot affect others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import pluggy

from sie_core import hookspecs
from sie_core.likeness import closest
from sie_core.plugins.faults import told
from sie_core.plugins.interfaces.versions import PAGE, UnservedVersion, check_versions
from sie_core.plugins.registration import REGISTRATIONS, Malformed, read

REPLACED = {"sie_batch_policies": "became sie_schedulers before release 1.0"}
"""Hooks of earlier releases, and what became of them."""
Registered = Mapping[str, Sequence[tuple[str, Any]]]
"""Keyed by hook: pairs of a name and the object registered under it."""

logger = logging.getLogger("sie_core.plugins.hooks")

_SEE = f"if a name or a parameter of sie_core is meant, {PAGE} says what replaced it"


class BrokenPlugin(Exception):
    """A plugin cannot be used; the message is the cause, with a remedy, for the operator."""


def ask(load: Callable[[], object], module: str, who: str, trace: bool = False) -> Registered:
    """Load a plugin and collect what it registers.

    Args:
        load: Returns the plugin, usually by importing it.
        module: Target of its entry point, for messages.
        who: The plugin's name for the log.
        trace: Log every hook call.

    Raises:
        BrokenPlugin: It cannot be loaded, was written for a version of an interface that is not served, or implements
            a hook wrongly or one that does not exist; or a hook raised or broke its spec.
    """
    try:
        return _ask(load, module, who, trace)
    except BrokenPlugin:
        raise
    except Exception as error:
        raise BrokenPlugin(f"{module} cannot be registered: {told(error)}") from error


def _ask(load: Callable[[], object], module: str, who: str, trace: bool) -> Registered:
    plugin = _load(load, module)
    manager = pluggy.PluginManager("sie")
    manager.add_hookspecs(hookspecs)
    _check_forgotten_marker(manager, plugin, module)
    try:
        manager.register(plugin)
    except pluggy.PluginValidationError as error:
        raise BrokenPlugin(f"{' '.join(str(error).split())}; write it as sie_core.hookspecs does") from error
    _check_hook_names(manager, module)
    try:
        check_versions(plugin, module, [hook for hook in REGISTRATIONS if getattr(manager.hook, hook).get_hookimpls()])
    except UnservedVersion as error:
        raise BrokenPlugin(str(error)) from error
    if trace:
        _trace(manager, who)
    return {hook: pairs for hook in REGISTRATIONS if (pairs := _call(manager, hook))}


def _load(load: Callable[[], object], module: str) -> object:
    try:
        return load()
    except BaseException as error:
        message = f"{module} cannot be imported: {told(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name:
            message += f"; install what provides {error.name!r}, or mend the entry point"
        elif isinstance(error, ImportError | TypeError):
            message += f"; {_SEE}"
        raise BrokenPlugin(message) from error


def _check_forgotten_marker(manager: pluggy.PluginManager, plugin: object, module: str) -> None:
    for hook in REGISTRATIONS:
        if callable(getattr(plugin, hook, None)) and manager.parse_hookimpl_opts(plugin, hook) is None:
            raise BrokenPlugin(f"{module} defines {hook} without @hookimpl, so it would never be called; add it")


def _check_hook_names(manager: pluggy.PluginManager, module: str) -> None:
    """Refuse what pluggy accepts silently: unknown hooks, and wrappers, which have nothing to wrap here."""
    for name, caller in vars(manager.hook).items():
        for implementation in caller.get_hookimpls():
            if not caller.has_spec() and not implementation.optionalhook:
                if name in REPLACED:
                    raise BrokenPlugin(f"{module} implements {name}, which {REPLACED[name]}; {PAGE} says how")
                _, nearest = closest(name, REGISTRATIONS, least=0)[0]
                raise BrokenPlugin(
                    f"{module} implements {name}, which is no hook of SIE; did you mean {nearest}? "
                    f"Hooks: {', '.join(REGISTRATIONS)}"
                )
            if implementation.wrapper or implementation.hookwrapper:
                raise BrokenPlugin(
                    f"{module} implements {name} as a wrapper; hooks of SIE register and are not wrapped"
                )


def _call(manager: pluggy.PluginManager, hook: str) -> list[tuple[str, Any]]:
    caller = getattr(manager.hook, hook)
    try:
        results = caller()
    except BaseException as error:
        see = f"; {_SEE}" if isinstance(error, ImportError | TypeError) else ""
        raise BrokenPlugin(f"{hook} raised {told(error)}{see}") from error
    if len(results) < len(caller.get_hookimpls()):  # pluggy drops None
        raise BrokenPlugin(f"{hook} returned None; return an empty list where there is nothing to register")
    try:
        return [pair for result in results for pair in read(hook, result)]
    except Malformed as error:
        raise BrokenPlugin(str(error)) from error
    except Exception as error:
        raise BrokenPlugin(f"{hook} returned something that cannot be read: {told(error)}") from error


def _trace(manager: pluggy.PluginManager, who: str) -> None:
    started = 0.0

    def before(hook: str, implementations: Sequence[Any], arguments: Mapping[str, Any]) -> None:
        nonlocal started
        started = perf_counter()

    def after(outcome: pluggy.Result[Any], hook: str, implementations: Sequence[Any], arguments: Any) -> None:
        if not implementations:
            return
        result = repr(outcome.get_result())[:200] if outcome.exception is None else f"raised {told(outcome.exception)}"
        logger.info("hook %s of %s -> %s in %.1f ms", hook, who, result, 1000 * (perf_counter() - started))

    manager.add_hookcall_monitoring(before, after)

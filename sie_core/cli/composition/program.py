"""The start of a command that serves or computes: settings, log, threads and plugins; and the wording of its errors."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

import click

from sie_core.cli.composition.compose import BadSettings, find_plugins, read_settings, warn_of_unknown_variables
from sie_core.concurrency.pacing import PACING
from sie_core.cpu_budget import cpu_budget, set_thread_environment
from sie_core.logs import configure_logging, set_levels
from sie_core.serving.garbage import bound_arenas, collect_seldom, keep_imported

if TYPE_CHECKING:
    from sie_core.plugins import PluginSet
    from sie_core.settings import Settings

S = TypeVar("S", bound="Settings")
Program: TypeAlias = "AbstractContextManager[tuple[S, PluginSet]]"

log = logging.getLogger("sie_core")


@overload
def program(
    *errors: type[Exception], model: None = None, computes: bool = False, **options: Any
) -> Program[Settings]: ...
@overload
def program(*errors: type[Exception], model: type[S], computes: bool = False, **options: Any) -> Program[S]: ...
@contextmanager
def program(
    *errors: type[Exception], model: type[Any] | None = None, computes: bool = False, **options: Any
) -> Iterator[tuple[Any, PluginSet]]:
    """Run a block with the settings in force and the plugins they allow.

    Args:
        model: The settings that the command reads; None takes the core's.
        errors: Further exceptions of the block that are shown by their message alone.
        computes: Whether numeric libraries run in this process. They must be imported in the block, because they count
            threads at import.
        options: Options of the command line, by setting.

    Raises:
        BadSettings: A setting or the set of plugins cannot be used.
        ClickException: One of `errors`, by its message.
    """
    collect_seldom()  # first: imports alone would trigger dozens of passes
    bound_arenas()
    settings = read_settings(model, **options)
    configure_logging(settings.log_level, as_json=settings.log_json, access=settings.access_log)
    if settings.log_settings is not None:
        _follow_log_settings(partial(read_settings, model, **options))
    budget = cpu_budget()
    PACING.set_cores(budget.threads)
    if computes:
        threads = set_thread_environment(budget)
        log.debug("CPU budget: %s; %s", budget, threads)

    from sie_core.contracts import ObjectStoreError, PluginError, QueueError
    from sie_core.serving.listening import ListenError
    from sie_core.settings import SettingsError

    told: tuple[type[Exception], ...] = (ListenError, ObjectStoreError, PluginError, QueueError, *errors)
    try:
        plugins = find_plugins(settings)
        warn_of_unknown_variables(type(settings), plugins)
        keep_imported()
        yield settings, plugins
    except SettingsError as error:
        raise BadSettings(str(error)) from None
    except told as error:
        raise click.ClickException(str(error)) from None


def _follow_log_settings(read: Callable[[], Settings]) -> None:
    """Read the settings of the log again at each SIGHUP, and keep what is in force where that fails."""
    # A handler may run within any call, a lock held: it takes none itself.
    asked: SimpleQueue[None] = SimpleQueue()
    signal.signal(signal.SIGHUP, lambda *_: asked.put(None))

    def follow() -> None:
        while True:
            asked.get()
            try:
                settings = read()
            except BadSettings as error:
                log.error("SIGHUP: the log settings stay as they are: %s", error.message)
            else:
                set_levels(settings.log_level, settings.access_log)
                log.info("SIGHUP: SIE_LOG_LEVEL=%s, SIE_ACCESS_LOG=%s", settings.log_level, settings.access_log)

    threading.Thread(target=follow, name="sie-log-settings", daemon=True).start()

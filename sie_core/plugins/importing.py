"""Guards the process while plugins are imported: an import may print, take long, hang, change the process or end it.

A file names the import under way, so that the next start can say which one ended the process.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from platform import node
from typing import Any, TypeVar

from sie_core.contracts import DeprecatedWarning
from sie_core.plugins.calls import Calls
from sie_core.plugins.output import stdout_to_stderr
from sie_core.settings import Settings

log = logging.getLogger("sie_core.plugins")

Result = TypeVar("Result")

SLOW_S = 1.0
"""Seconds after which a slow import is logged: every start and every command waits for it."""
HUNG_S = 20.0
"""Seconds that an import and its hooks may take; a start goes on without a plugin that hangs."""
FOLDER = "sie-starts"


class Imports:
    """The imports of one start, one after another.

    Args:
        folder: Folder of the files in which each process names its current import; None for no file.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / f"{node()}.{os.getpid()}"
        self._calls = Calls()

    def run(self, who: str, block: str, call: Callable[[], Result]) -> tuple[Result, list[str]]:
        """Import a plugin by `call`, on a thread of its own.

        Args:
            who: The plugin's name for messages.
            block: The plugin's name in `SIE_PLUGINS_BLOCKED`.
            call: Imports it.

        Returns:
            What `call` returned, and what it changed of the process, which is undone.

        Raises:
            HungError: It took longer than `HUNG_S`.
        """
        self._begin(f"{who} was imported; set SIE_PLUGINS_BLOCKED={block} to start without it")
        started = time.monotonic()
        changes: list[str] = []
        try:
            with stdout_to_stderr(), _undone(changes):
                result = self._calls.within(f"import-{block}", HUNG_S, call)
        finally:
            self._end()
        if (took := time.monotonic() - started) > SLOW_S:
            log.warning("%s: its import took %.1f s, which every start waits for", who, took)
        return result, changes

    def _begin(self, told: str) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.write_text(told, encoding="utf-8")

    def _end(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)


@contextmanager
def deprecations() -> Iterator[list[str]]:
    """Collect the deprecations that the block warns of; all other warnings go their way."""
    found: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", DeprecatedWarning)
        show = warnings.showwarning

        def keep(message: Any, category: type[Warning], *where: Any, **further: Any) -> None:
            if issubclass(category, DeprecatedWarning):
                found.append(str(message))
            else:
                show(message, category, *where, **further)

        warnings.showwarning = keep
        yield found


@contextmanager
def _undone(changes: list[str]) -> Iterator[None]:
    """Undo what the block changes of the whole process, and list it in `changes`."""
    folder, disabled = _working_directory(), logging.root.manager.disable
    try:
        yield
    finally:
        if folder is not None and (now := _working_directory()) != folder:
            os.chdir(folder)
            changes.append(f"its import changed the working directory to {now}, which is undone")
        if logging.root.manager.disable != disabled:
            changes.append(f"its import called logging.disable({logging.root.manager.disable}), which is undone")
            logging.disable(disabled)


def _working_directory() -> str | None:
    with suppress(OSError):  # it was removed
        return str(Path.cwd())
    return None


def begin_imports(settings: Settings) -> Imports:
    """Begin the imports of a start; log which import ended an earlier process."""
    folder = _folder(settings)
    for file in () if folder is None else sorted(folder.iterdir()):
        host, _, process = file.name.rpartition(".")
        if host == node() and not _is_running(process):
            with suppress(OSError):
                log.critical("an earlier start ended while the %s", file.read_text(encoding="utf-8", errors="replace"))
                file.unlink()
    return Imports(folder)


def _folder(settings: Settings) -> Path | None:
    """Return a folder that outlives the process; None if none is writable."""
    cache = settings.local_cache
    with suppress(OSError, RuntimeError):
        if cache is not None and cache.expanduser().is_dir():
            folder = cache.expanduser() / f".{FOLDER}"
        else:
            folder = Path.home() / ".cache" / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return folder
    return None


def _is_running(process: str) -> bool:
    """Whether another process of that number runs. In a container the previous process had the same number."""
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return int(process) != os.getpid()

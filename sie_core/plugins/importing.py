"""Guards the process while plugins are imported: an import may print, take long, hang, or end the process.

A file names the import under way, so that the next start can say which one ended the process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from platform import node

from sie_core.plugins.output import stdout_to_stderr
from sie_core.settings import Settings

log = logging.getLogger("sie_core.plugins")

SLOW_S = 1.0
"""Seconds after which a slow import is logged: every start and every command waits for it."""
HUNG_S = 10.0
"""Seconds after which an import that has not returned yet is logged."""
FOLDER = "sie-starts"


class Imports:
    """The imports of one start, one after another.

    Args:
        folder: Folder of the files in which each process names its current import; None for no file.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / f"{node()}.{os.getpid()}"

    @contextmanager
    def of(self, who: str, block: str) -> Iterator[None]:
        """Import a plugin in the block.

        Args:
            who: The plugin's name for messages.
            block: Its name in `SIE_PLUGINS_BLOCKED`.
        """
        remedy = f"set SIE_PLUGINS_BLOCKED={block} to start without it"
        hung = threading.Timer(HUNG_S, log.critical, ("%s: its import has not ended for %g s; %s", who, HUNG_S, remedy))
        hung.daemon = True
        hung.start()
        self._begin(f"{who} was imported; {remedy}")
        started = time.monotonic()
        try:
            with stdout_to_stderr():
                yield
        finally:
            hung.cancel()
            self._end()
        if (took := time.monotonic() - started) > SLOW_S:
            log.warning("%s: its import took %.1f s, which every start waits for", who, took)

    def _begin(self, told: str) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.write_text(told, encoding="utf-8")

    def _end(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)


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

"""Records the failures of registered objects after discovery, by plugin."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from typing import NamedTuple

log = logging.getLogger("sie_core.plugins")

MOST = 20
"""The most problems of a plugin that are kept and logged: their text may differ with every request."""


class Fault(NamedTuple):
    """One problem of a plugin."""

    problem: str
    """Fit for a client: without the text of the plugin's exception."""
    detail: str
    """The text of the plugin's exception, for the log."""

    def __str__(self) -> str:
        return f"{self.problem}: {self.detail}" if self.detail else self.problem


class Faults:
    """Problems by plugin, each logged once. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: defaultdict[str, list[Fault]] = defaultdict(list)

    def add(self, plugin: str, problem: str, error: BaseException | None = None) -> None:
        """Record and log a problem of a plugin, unless it is known already."""
        fault = Fault(problem, "" if error is None else _line(error))
        with self._lock:
            known = self._found[plugin]
            if fault in known or len(known) >= MOST:
                return
            known.append(fault)
        log.error("%s: %s", plugin, problem, exc_info=error)

    def of(self, plugin: str) -> tuple[Fault, ...]:
        """List the problems of a plugin."""
        with self._lock:
            return tuple(self._found.get(plugin, ()))


def told(error: BaseException) -> str:
    """Format an exception in one line."""
    text = _line(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())

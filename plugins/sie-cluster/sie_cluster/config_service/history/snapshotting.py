"""Writes snapshots in a thread of their own, while writes and renewals go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sie_cluster.config_service.history.history import History
from sie_cluster.config_service.history.lease import LeaseLost
from sie_cluster.config_service.history.state import State
from sie_core.contracts import ObjectStoreError

log = logging.getLogger(__name__)


class Snapshotter:
    """Writes one snapshot at a time.

    Args:
        history: Of what.
        writing: The lock under which its other methods are called.
        leading: Returns the fence and the state while this process leads, else None.
    """

    def __init__(
        self, history: History, writing: threading.Lock, leading: Callable[[], tuple[int, State] | None]
    ) -> None:
        self._history, self._writing, self._leading = history, writing, leading
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Begin a snapshot where one is due and none is being written."""
        if self._history.snapshot_due and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, name="sie-config-snapshot", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Wait for the one that is being written."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        led = self._leading()
        if led is None:
            return
        fence, state = led
        try:
            pointer = self._history.write_snapshot(state)
            with self._writing:
                led = self._leading()
                if led is None or led[0] != fence:
                    return
                oldest = self._history.name_snapshot(pointer)
            self._history.sweep(oldest)
        except (ObjectStoreError, LeaseLost) as error:
            log.warning("no snapshot of the config store was written; it is tried again: %s", error)

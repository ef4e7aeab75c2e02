"""Everything that is kept, as one object of a store: the backup of the broker's journal, or the log without one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from sie_cluster.config_service.store.old_form import read_old_form
from sie_cluster.config_service.store.records import Backup, StoreDamaged, encode, parse
from sie_cluster.config_service.store.state import State
from sie_core.contracts import ObjectStore, ObjectStoreError

KEY: Final = "configs.json"
AGAIN_S: Final = 2.0
"""Between attempts to write a backup while the store fails."""

log = logging.getLogger(__name__)


class BackupStore:
    """The backup below `SIE_CONFIG_STORE_DIR`. Methods block; one thread at a time calls them.

    Methods raise `ObjectStoreError`.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._version: str | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self._store.url}/{KEY}"

    def read(self) -> Backup | None:
        """Return the backup; None where there is none. What an earlier release kept there is made into one.

        Raises:
            StoreDamaged: It cannot be read.
        """
        try:
            found = self._store.read_version(KEY)
        except ObjectStoreError as error:
            if error.failure != "NOT_FOUND":
                raise
            self._version = None
            taken_over = read_old_form(self._store)
            if taken_over is not None:
                self.write(taken_over)
            return taken_over
        self._version = found.version
        return parse(Backup, found.data, self.url)

    def write(self, backup: Backup) -> None:
        """Write it in place of the one that was read or written last. `CONFLICT`: another has written since."""
        data = encode(backup)
        if self._version is None:
            self._version = self._store.create(KEY, data)
        else:
            self._version = self._store.replace(KEY, data, self._version)


class BackupKeeper:
    """Writes the newest state as a backup in a thread of its own; changes while it writes make one more backup.

    Args:
        backups: Where.
        state: Returns the newest state.
    """

    def __init__(self, backups: BackupStore, state: Callable[[], State]) -> None:
        self._backups, self._state = backups, state
        self._changed, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="sie-config-backup", daemon=True)
        self.epoch = 0
        """Of the last backup that this process wrote or found."""
        self.problem: str | None = None
        """Why the newest state has no backup; None where it has one, or is about to."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def changed(self) -> None:
        """Have a backup written soon. Called from any thread."""
        self._changed.set()

    def stop(self) -> None:
        """Write what changed, once, and end."""
        self._stopping.set()
        self._changed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.wait()
            self._changed.clear()
            state = self._state()
            if state.restoring or state.epoch == self.epoch:
                continue
            try:
                self._keep(state)
            except Exception as error:
                if not isinstance(error, ObjectStoreError | StoreDamaged):
                    log.exception("no backup of the model configs was written")
                self._tell(str(error))
                self._changed.set()
                self._stopping.wait(AGAIN_S)

    def _keep(self, state: State) -> None:
        try:
            self._backups.write(state.backup())
        except ObjectStoreError as error:
            if error.failure != "CONFLICT":
                raise
            found = self._backups.read()  # another service writes backups of the same log
            if found is None or found.epoch < state.epoch:
                self._backups.write(state.backup())
            elif found.epoch > state.epoch:
                raise StoreDamaged(
                    f"{self._backups.url} is of epoch {found.epoch}, and the log of {state.epoch}: the broker has lost "
                    "later writes. Restore the backup (`sie config restore`), or move it away"
                ) from None
        self.epoch = state.epoch
        self._tell(None)

    def _tell(self, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            log.warning("no backup of the model configs is written, and it is tried again: %s", problem)
        self.problem = problem

"""Everything that is kept, as one object of a store: the backup of the broker's journal, or the log without one."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import Final

from sie_cluster.config_service.store.old_form import read_old_form
from sie_cluster.config_service.store.records import Backup, StoreDamaged, encode, parse
from sie_cluster.config_service.store.state import State
from sie_core.contracts import ObjectStore, ObjectStoreError

KEY: Final = "configs.json"
AGAIN_S: Final = 1.0
"""Between two backups, and between attempts while the store fails."""
BEHIND_S: Final = 15.0
"""For how long a backup may hold more than was read before that is told: what another service wrote is read soon."""

log = logging.getLogger(__name__)


class BackupStore:
    """The backup below `SIE_CONFIG_STORE_DIR`. Methods block; one thread at a time calls them.

    Methods raise `ObjectStoreError`.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._version: str | None = None
        self.last: Backup | None = None
        """What was read or written here last, where it could be read."""

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
            self._version = self.last = None
            taken_over = read_old_form(self._store)
            if taken_over is not None:
                self.write(taken_over)
            return taken_over
        if self.last is None or found.version != self._version:
            self._version, self.last = found.version, None
            self.last = parse(Backup, found.data, self.url)
        return self.last

    def write(self, backup: Backup) -> None:
        """Write it in place of the one that was read or written last. `CONFLICT`: another has written since."""
        data = encode(backup)
        if self._version is None:
            self._version = self._store.create(KEY, data)
        else:
            self._version = self._store.replace(KEY, data, self._version)
        self.last = backup

    def set_aside(self) -> int:
        """Begin with nothing; what is there gets another name. Return its epoch, 0 where that cannot be read."""
        try:
            found = self.read()
        except StoreDamaged as error:
            log.warning("%s", error)
            found = None
        epoch = 0 if found is None else found.epoch
        if self._version is not None:
            aside = f"configs-{epoch}-{uuid.uuid4().hex[:8]}.json"
            self._store.write(aside, self._store.read(KEY))
            log.warning("SIE_CONFIG_RESTORE=false: %s is left aside as %s", self.url, aside)
            self.write(Backup(epoch=epoch))
        return epoch


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
        self._behind_since: float | None = None
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
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        ends = False
        while not ends:
            self._changed.wait()
            ends = self._stopping.is_set()
            self._changed.clear()
            state = self._state()
            if state.restoring or state.epoch == self.epoch:
                continue
            try:
                if not self._keep(state):
                    self._changed.set()
            except Exception as error:
                if not isinstance(error, ObjectStoreError | StoreDamaged):
                    log.exception("no backup of the model configs was written")
                self._tell(str(error))
                self._changed.set()
            self._stopping.wait(AGAIN_S)

    def _keep(self, state: State) -> bool:
        """Write a backup over one whose every write this state holds; False where that is to come yet."""
        found = self._backups.last or self._backups.read()
        if found is not None and not state.follows(found):
            if self._is_behind():
                return False
            raise StoreDamaged(
                f"{self._backups.url}, of epoch {found.epoch}, holds writes that the log, at {state.epoch}, does "
                "not: the broker has lost them. Restore the backup (`sie config restore`), or move it away"
            )
        try:
            if found is None or found.epoch < state.epoch:
                self._backups.write(state.backup())
        except ObjectStoreError as error:
            if error.failure != "CONFLICT":
                raise
            self._backups.read()  # another service writes backups of the same log
            return False
        self.epoch, self._behind_since = state.epoch, None
        self._tell(None)
        return True

    def _is_behind(self) -> bool:
        """Whether the state may only be behind what another service wrote, which is read soon."""
        now = time.monotonic()
        self._behind_since = self._behind_since or now
        return now - self._behind_since < BEHIND_S

    def _tell(self, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            log.warning("no backup of the model configs is written, and it is tried again: %s", problem)
        self.problem = problem

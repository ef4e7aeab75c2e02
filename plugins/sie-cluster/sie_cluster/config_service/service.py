"""The config service: validates writes, keeps each by a compare-and-set on the log of all writes, and tells of it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping

from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.registry import Registry

from sie_cluster.config_service.held import Held, Source, hold
from sie_cluster.config_service.refusals import not_read, store_failed, store_required
from sie_cluster.config_service.results import Answer
from sie_cluster.config_service.store.backups import BackupStore
from sie_cluster.config_service.store.logs import ConfigLog
from sie_cluster.config_service.store.records import Backup, StoreDamaged, Write, key_of, pack
from sie_cluster.config_service.store.restoring import restore
from sie_cluster.config_service.store.state import State
from sie_cluster.config_service.telling import Exports, Publish, change_of, tell
from sie_cluster.config_service.writing.bodies import read_body
from sie_cluster.config_service.writing.plans import Plan, plan_create, plan_delete, plan_put
from sie_cluster.config_service.writing.requests import WriteRequest
from sie_core.catalog.configs.snapshot import Catalog
from sie_core.contracts import ObjectStoreError, QueueError

log = logging.getLogger(__name__)

WRITE_S = 8.0
"""For how long a write is tried again while others are first, or the broker elects a leader."""
PAUSE_S = 0.1
"""Between two of these attempts, where the log failed."""


class ConfigService:
    """What a config service holds, and the writes to it. Methods may be called from any thread, and block.

    A write states the epoch that it was validated against, so that of several services at once one is first and the
    others validate again. It counts once it is in the log: a service that starts afterwards has it, and one that starts
    after a crash before that knows nothing of it.

    Args:
        base: What is served where nothing was written.
        placement: Says which bundles serve a model.
        log: Keeps what is written; None refuses writes.
        name: Of this process, for answers.
        backups: What an empty log is restored from; None restores nothing.
        restore: False begins an empty log with nothing, above the epoch of the backup.
        publish: Tells a change to others; returns a warning for the answer, or None.
        changed: Called after each change, this service's or another's.
        step: Called with the name of each step that is done.
        now: Seconds since 1970.
    """

    def __init__(
        self,
        base: Catalog,
        placement: Placement,
        log: ConfigLog | None,
        *,
        name: str,
        backups: BackupStore | None = None,
        restore: bool = True,
        publish: Publish = lambda _: None,
        changed: Callable[[], None] = lambda: None,
        step: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._base, self._placement, self._log, self._name = base, placement, log, name
        self._backups, self._restore, self._publish, self._changed = backups, restore, publish, changed
        self._step, self._now = step, now
        self._writing = threading.Lock()
        self._stopping = threading.Event()
        self._exports = Exports()
        self._held = hold(base, State(), placement)
        self._opened = log is None
        self.problem: str | None = None if log is None else "the config store was not read yet"
        """Why nothing is answered, for the operator; None where all is well."""

    @property
    def ready(self) -> bool:
        """Whether it may be read and written: everything in the log was read once."""
        return self.problem is None

    @property
    def state(self) -> State:
        """What was written, as far as it was read."""
        return self._held.state

    @property
    def registry(self) -> Registry:
        """Where every model is served."""
        return self._held.registry

    @property
    def sources(self) -> Mapping[str, Source]:
        """Where each config comes from, by id."""
        return self._held.sources()

    def stop(self) -> None:
        """End; a write that is being done is waited for, and not tried again."""
        self._stopping.set()
        with self._writing:
            self.problem = "the service has stopped"

    def reopen(self) -> None:
        """Open the log again before the next reading: its broker may have lost what it held."""
        self._opened = False

    def read_on(self) -> None:
        """Read what others wrote; the first time, open the log and restore it where it is empty.

        Raises:
            QueueError: The log failed.
            ObjectStoreError: The same of a store.
            StoreDamaged: The log or the backup cannot be read.
        """
        if self._log is None:
            return
        with self._writing:
            try:
                self._catch_up(self._log)
                self.problem = "a restore of the config store is not complete" if self.state.restoring else None
            except StoreDamaged as error:
                self.problem = str(error)
                raise
            except (QueueError, ObjectStoreError) as error:
                if not self.ready:
                    self.problem = str(error)
                raise

    def check_ready(self) -> None:
        """Refuse what needs all that was written.

        Raises:
            InferenceError: `CONFIG_STORE_UNAVAILABLE`.
        """
        if self.problem is not None:
            raise not_read(self._name, self.problem)

    def rebase(self, base: Catalog | None = None, placement: Placement | None = None) -> None:
        """Serve another base or by other bundles from now on; None leaves it as it is.

        The epoch stays, because nothing was written; the hashes tell.
        """
        with self._writing:
            self._base, self._placement = base or self._base, placement or self._placement
            self._held = hold(self._base, self._held.state, self._placement, self._held)

    def export(self) -> bytes:
        """Return what `GET /v1/configs/export` answers: everything at one epoch, as JSON.

        Raises:
            InferenceError: `CONFIG_STORE_UNAVAILABLE`.
        """
        self.check_ready()
        return self._exports.of(self._held, self._now())

    def create(self, body: bytes, key: str | None = None) -> Answer:
        """Add profiles to a model, which may be new: `POST /v1/configs/models`.

        Args:
            body: The config or a part of it, in YAML or JSON.
            key: The idempotency key, if any.

        Raises:
            InferenceError: It is refused, and nothing changed; or `CONFIG_STORE_UNAVAILABLE`: that is open.
        """
        request, parsed = WriteRequest("POST", "/models", body, key), read_body(body)
        return self._write(request, lambda held: plan_create(held, self._placement, parsed))

    def put(self, model_id: str, body: bytes, key: str | None = None) -> Answer:
        """Replace a model's config: `PUT /v1/configs/models/{id}`. Arguments and errors are those of `create`."""
        request, parsed = WriteRequest("PUT", f"/models/{model_id}", body, key), read_body(body)
        return self._write(request, lambda held: plan_put(held, self._placement, model_id, parsed))

    def delete(self, model_id: str, key: str | None = None) -> Answer:
        """Remove what was written of a model: `DELETE /v1/configs/models/{id}`. Errors are those of `create`."""
        request = WriteRequest("DELETE", f"/models/{model_id}", b"", key)
        return self._write(request, lambda held: plan_delete(held, self._placement, model_id))

    def _write(self, request: WriteRequest, plan_of: Callable[[Held], Plan]) -> Answer:
        if self._log is None:
            raise store_required()
        with self._writing:
            self.check_ready()
            attempts: dict[int, Plan] = {}
            write_id, until = uuid.uuid4().hex, time.monotonic() + WRITE_S
            while True:
                try:
                    return self._attempt(self._log, request, plan_of, write_id, attempts)
                except (QueueError, ObjectStoreError) as error:
                    failed = error
                except StoreDamaged as error:
                    self.problem = str(error)
                    raise not_read(self._name, self.problem) from error
                if failed.failure not in ("CONFLICT", "UNAVAILABLE") or time.monotonic() >= until:
                    log.error("a write was not kept: %s", failed)
                    raise store_failed() from failed
                if failed.failure == "UNAVAILABLE" and self._stopping.wait(PAUSE_S):
                    raise store_failed() from failed

    def _attempt(
        self,
        onto: ConfigLog,
        request: WriteRequest,
        plan_of: Callable[[Held], Plan],
        write_id: str,
        attempts: dict[int, Plan],
    ) -> Answer:
        """Write upon what is in the log now, unless an earlier attempt is there, whose answer was lost."""
        self._catch_up(onto)
        held = self._held
        for epoch, plan in attempts.items():
            kept = held.state.writes.get(plan.model_id)
            if kept is not None and kept.id == write_id and held.state.epochs[plan.model_id] == epoch:
                answer = plan.answer_at(epoch, self._name)
                return self._tell(plan, answer) if epoch == held.epoch else answer
        now = self._now()
        if (known := request.answered(held.state, now)) is not None:
            return known
        plan = plan_of(held)
        epoch = held.epoch + plan.changes
        answer = plan.answer_at(epoch, self._name)
        if not plan.changes:
            return answer
        answers = held.state.answers_with(plan.model_id, request.kept(answer, now))
        write = Write.model_construct(id=write_id, model_id=plan.model_id, model=plan.model, answers=answers)
        self._step("validated")
        attempts[epoch] = plan
        onto.append(key_of(plan.model_id), pack(write), after=held.epoch)
        self._step("stored")
        self._held = held.after(held.state.written(epoch, write), plan.model_id, self._placement)
        self._step("registered")
        self._changed()
        return self._tell(plan, answer)

    def _tell(self, plan: Plan, answer: Answer) -> Answer:
        warning = tell(self._publish, plan.change(self._held))
        self._step("published")
        return answer if warning is None else Answer(answer.status, {**answer.body, "warnings": [warning]})

    def _catch_up(self, onto: ConfigLog) -> None:
        """Take what others wrote since."""
        if not self._opened:
            self._open(onto)
            return
        before, self._opened = self._held, False
        reading = onto.read(before.epoch)
        if reading.last < before.epoch:
            raise QueueError("UNAVAILABLE", f"The log has lost what came after {reading.last}; it is opened again.")
        self._opened = True
        if not reading.records:
            return
        state = before.state.after(reading)
        changed = [id_ for id_, epoch in state.epochs.items() if epoch > before.epoch]
        if len(changed) == 1 and state.epochs[changed[0]] == state.epoch:
            self._held = before.after(state, changed[0], self._placement)
        else:
            self._held = hold(self._base, state, self._placement, before)
        self._changed()

    def _open(self, onto: ConfigLog) -> None:
        """Open the log and read all of it; one that is empty takes what the backup holds."""
        backup = self._backup(onto)
        reading = onto.read()
        state = State().after(reading)
        if backup is not None and self._restore and (state.restoring or not reading.records):
            state = restore(onto, backup)
            log.info("%d models were restored from the backup of epoch %d", len(state.models), backup.epoch)
        self._held = hold(self._base, state, self._placement, self._held)
        self._opened = True
        log.info("%s has read the config store: epoch %d, %d models", self._name, state.epoch, len(state.models))
        self._changed()
        # Whoever wrote last may have ended before it told of it.
        if not state.restoring and (change := change_of(self._held)) is not None:
            tell(self._publish, change)

    def _backup(self, onto: ConfigLog) -> Backup | None:
        """Open the log and return the backup; a log that is there needs none."""
        if self._backups is None:
            onto.open(first=1)
            return None
        try:
            backup = self._backups.read()
        except StoreDamaged as error:
            if self._restore:
                raise
            log.warning("the backup of the model configs is left aside: %s", error)
            backup = None
        except ObjectStoreError as error:
            if error.failure != "UNAVAILABLE":
                raise
            try:
                onto.open(first=None)
            except QueueError as missing:
                raise error if missing.failure == "NOT_FOUND" else missing from error
            log.warning("the backup of the model configs cannot be read: %s", error)
            return None
        onto.open(first=1 if backup is None else backup.epoch + 1)
        return backup

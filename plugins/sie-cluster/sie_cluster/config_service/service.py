"""The config service: validates writes, keeps each by a compare-and-set on the log of all writes, and tells of it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import orjson
from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.registry import Registry

from sie_cluster.config_service.held import Held, Source, hold
from sie_cluster.config_service.refusals import not_kept, not_read, store_failed
from sie_cluster.config_service.results import Answer, Change, last_change
from sie_cluster.config_service.store.backups import BackupStore
from sie_cluster.config_service.store.logs import ConfigLog
from sie_cluster.config_service.store.records import StoreDamaged, Write, key_of, pack
from sie_cluster.config_service.store.restoring import restore
from sie_cluster.config_service.store.state import State
from sie_cluster.config_service.writing.bodies import read_body
from sie_cluster.config_service.writing.plans import Plan, plan_create, plan_delete, plan_put
from sie_cluster.config_service.writing.requests import WriteRequest
from sie_cluster.messages.export import write_export
from sie_core.catalog.configs.snapshot import Catalog
from sie_core.contracts import InferenceError, ObjectStoreError, QueueError

log = logging.getLogger(__name__)

Publish = Callable[[Change], str | None]

WRITE_S = 8.0
"""For how long a write is tried again while others are first, or the broker elects a leader."""
STALE_S = 15.0
"""After so long without a reading, others should be asked: several services may run, and this one is cut off."""
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
        log: Keeps what is written.
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
        log: ConfigLog,
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
        self._held = hold(base, State(), placement)
        self._exported: tuple[Held, bytes] | None = None
        """What was held when the last export was written, and that."""
        self._opened, self._created = False, ""
        self._read_at = time.monotonic()
        self._problem: str | None = "the config store was not read yet"

    @property
    def problem(self) -> str | None:
        """Why nothing is answered, for the operator; None where all is well: everything in the log was read once."""
        if self._problem is None and self.state.restoring:
            return "a restore of the config store is not complete: run `sie config restore` with the backup"
        return self._problem

    @property
    def ready(self) -> bool:
        """Whether it may be read and written."""
        return self.problem is None

    @property
    def stale(self) -> str | None:
        """Why other services should be asked: what they write was not read for long; None where all is well."""
        age_s = time.monotonic() - self._read_at
        return None if self._backups is None or age_s < STALE_S else f"the config store was last read {age_s:.0f} s ago"

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
            self._problem = "the service has stopped"

    def read_on(self) -> None:
        """Read what others wrote; the first time, or after it was lost, open the log and restore it where it is empty.

        Raises:
            QueueError: The log failed.
            ObjectStoreError: The same of a store.
            StoreDamaged: The log or the backup cannot be read.
        """
        with self._writing:
            try:
                self._catch_up()
            except (QueueError, ObjectStoreError) as error:
                if self._problem is not None:
                    self._problem = str(error)
                raise

    def check_ready(self) -> None:
        """Refuse what needs all that was written.

        Raises:
            InferenceError: `CONFIG_STORE_UNAVAILABLE`.
        """
        if (problem := self.problem) is not None:
            raise not_read(self._name, problem)

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
        held, written = self._held, self._exported
        if written is None or written[0] is not held:
            at = datetime.fromtimestamp(self._now(), UTC).isoformat()
            written = self._exported = held, orjson.dumps(write_export(held.registry, held.sources(), at))
        return written[1]

    def create(self, body: bytes, key: str | None = None, *, dry_run: bool = False) -> Answer:
        """Add profiles to a model, which may be new: `POST /v1/configs/models`.

        Args:
            body: The config or a part of it, in YAML or JSON.
            key: The idempotency key, if any.
            dry_run: Whether the answer is only what it would be, at the epoch of now, and nothing is written.

        Raises:
            InferenceError: It is refused, and nothing changed; or `CONFIG_STORE_UNAVAILABLE`: that is open.
        """
        request, parsed = WriteRequest("POST", "/models", body, key), read_body(body)
        return self._write(request, lambda held: plan_create(held, self._placement, parsed), dry_run)

    def put(self, model_id: str, body: bytes, key: str | None = None, *, dry_run: bool = False) -> Answer:
        """Replace a model's config: `PUT /v1/configs/models/{id}`. Arguments and errors are those of `create`."""
        request, parsed = WriteRequest("PUT", f"/models/{model_id}", body, key), read_body(body)
        return self._write(request, lambda held: plan_put(held, self._placement, model_id, parsed), dry_run)

    def delete(self, model_id: str, key: str | None = None, *, dry_run: bool = False) -> Answer:
        """Remove what was written of a model: `DELETE /v1/configs/models/{id}`. Errors are those of `create`."""
        request = WriteRequest("DELETE", f"/models/{model_id}", b"", key)
        return self._write(request, lambda held: plan_delete(held, self._placement, model_id), dry_run)

    def _write(self, request: WriteRequest, plan_of: Callable[[Held], Plan], dry_run: bool) -> Answer:
        if dry_run:
            self.check_ready()
            held = self._held
            return plan_of(held).answer_at(held.epoch, self._name)
        until = time.monotonic() + WRITE_S
        if not self._writing.acquire(timeout=WRITE_S):
            raise not_kept("other writes wait for it")
        try:
            self.check_ready()
            attempts: dict[int, Plan] = {}
            write_id, unanswered = uuid.uuid4().hex, False
            while True:
                try:
                    return self._attempt(request, plan_of, write_id, attempts)
                except (QueueError, ObjectStoreError) as error:
                    failed = error
                except StoreDamaged as error:
                    raise not_read(self._name, str(error)) from error
                unanswered = unanswered or failed.failure == "UNAVAILABLE"
                if failed.failure not in ("CONFLICT", "UNAVAILABLE") or time.monotonic() >= until:
                    log.error("a write was not kept: %s", failed)
                    raise (store_failed() if unanswered and attempts else not_kept(str(failed))) from failed
                if failed.failure == "UNAVAILABLE" and self._stopping.wait(PAUSE_S):
                    raise store_failed() from failed
        finally:
            self._writing.release()

    def _attempt(
        self, request: WriteRequest, plan_of: Callable[[Held], Plan], write_id: str, attempts: dict[int, Plan]
    ) -> Answer:
        """Write upon what is in the log now, unless an earlier attempt is there, whose answer was lost.

        Where another service wrote the same model meanwhile, that attempt is not seen, and the write is made again.
        """
        self._catch_up()
        self.check_ready()
        held = self._held
        for epoch, plan in attempts.items():
            kept = held.state.writes.get(plan.model_id)
            if kept is not None and kept.id == write_id and held.state.epochs[plan.model_id] == epoch:
                answer = plan.answer_at(epoch, self._name)
                return self._told(plan, answer) if epoch == held.epoch else answer
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
        packed = pack(write)
        self._step("validated")
        attempts[epoch] = plan
        try:
            self._log.append(key_of(plan.model_id), packed, after=held.epoch)
        except QueueError as error:
            if error.failure != "TOO_LARGE":
                raise
            told = f"The config of {plan.model_id} takes {len(packed)} bytes, compressed, and the broker carries no "
            raise InferenceError("PAYLOAD_TOO_LARGE", told + "message of that size.") from error
        self._step("stored")
        self._held = held.after(held.state.written(epoch, write), plan.model_id, self._placement)
        self._step("registered")
        self._changed()
        return self._told(plan, answer)

    def _told(self, plan: Plan, answer: Answer) -> Answer:
        warning = self._tell(plan.change(self._held))
        self._step("published")
        return answer if warning is None else Answer(answer.status, {**answer.body, "warnings": [warning]})

    def _tell(self, change: Change) -> str | None:
        """Publish a change and return a warning where that failed: the change stands, and followers find it later."""
        try:
            return self._publish(change)
        except Exception:
            log.exception("the change of %s was not published", change.model_id)
            return "nats_publish_failed: the log says why; followers find the change when they look at the epoch next"

    def _catch_up(self) -> None:
        """Take what others wrote since; a log that is not the one that was read is opened again."""
        try:
            if not (self._opened and self._read()):
                self._open()
        except StoreDamaged as error:
            self._problem = str(error)
            raise
        self._read_at, self._problem = time.monotonic(), None

    def _read(self) -> bool:
        """Read on; False where the log was lost."""
        before = self._held
        try:
            reading = self._log.read(before.epoch)
        except QueueError as error:
            if error.failure == "NOT_FOUND":
                return False
            raise
        if reading.last < before.epoch or reading.created != self._created:
            return False
        if not reading.records:
            return True
        state = before.state.after(reading)
        changed = [id_ for id_, epoch in state.epochs.items() if epoch > before.epoch]
        if len(changed) == 1 and state.epochs[changed[0]] == state.epoch:
            self._held = before.after(state, changed[0], self._placement)
        else:
            self._held = hold(self._base, state, self._placement, before)
        self._changed()
        return True

    def _open(self) -> None:
        """Open the log and read all of it; one that is not there, empty or half restored takes what is known of it."""
        self._opened = False
        try:
            self._log.open(first=None)
            reading = self._log.read()
            state = State().after(reading)
        except QueueError as error:
            if error.failure != "NOT_FOUND":
                raise
            reading, state = None, State()
        if reading is None or not reading.records or state.restoring:
            state = self._fill()
            reading = self._log.read(state.epoch)
        self._held = hold(self._base, state, self._placement, self._held)
        self._created, self._opened = reading.created, not state.restoring
        log.info("%s has read the config store: epoch %d, %d models", self._name, state.epoch, len(state.models))
        self._changed()
        # Whoever wrote last may have ended before it told of it.
        if not state.restoring and (change := last_change(self._held)) is not None:
            self._tell(change)

    def _fill(self) -> State:
        """Put the newest of what this service holds and of the backup into the log, above its epoch."""
        known = [self.state.backup()] if self.state.epoch else []
        if self._backups is not None and self._restore:
            found = self._backups.read()
            known += [] if found is None else [found]
        first = 1 + max((each.epoch for each in known), default=0)
        if self._backups is not None and not self._restore:
            first = max(first, 1 + self._backups.set_aside())
        self._log.open(first=first)
        source = max(known, key=lambda each: each.epoch, default=None)
        if source is None and self._restore:
            return State().after(self._log.read())
        state = restore(self._log, source)
        if source is not None:
            log.info("%d models were restored from epoch %d", len(state.models), source.epoch)
        return state

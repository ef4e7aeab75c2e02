"""The config service: one writer of configs at a time, with an order of steps that a crash cannot leave half done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.registry import Registry

from sie_cluster.config_service.held import Held, Source, hold
from sie_cluster.config_service.history.history import History, StoreDamaged
from sie_cluster.config_service.history.lease import LASTS_S, Lease, LeaseLost
from sie_cluster.config_service.history.records import Commit
from sie_cluster.config_service.history.snapshotting import Snapshotter
from sie_cluster.config_service.history.state import State
from sie_cluster.config_service.leading import Leadership, renewed
from sie_cluster.config_service.refusals import standby, store_failed, store_required
from sie_cluster.config_service.results import Answer
from sie_cluster.config_service.telling import Exports, Publish, change_of, tell
from sie_cluster.config_service.writing.bodies import read_body
from sie_cluster.config_service.writing.plans import Plan, plan_create, plan_delete, plan_put
from sie_cluster.config_service.writing.requests import WriteRequest
from sie_core.catalog.configs.snapshot import Catalog
from sie_core.contracts import ObjectStore, ObjectStoreError

log = logging.getLogger(__name__)

LEASE = "lease"
"""The object that holds the lease and names the last commit."""


class ConfigService:
    """What a config service holds, and the writes to it. Methods may be called from any thread, and block.

    A write is validated, kept, put in the registry with its epoch, and published, under one lock. It counts once it is
    kept: a process that starts afterwards completes it, and one that starts after a crash before that knows nothing of
    it.

    Args:
        base: What is served where nothing was written.
        placement: Says which bundles serve a model.
        store: Keeps what is written; None refuses writes.
        owner: The name of this process, for others to tell.
        publish: Tells a change to others; returns a warning for the answer, or None.
        restore: False begins with an empty store, at the epoch that was reached.
        lasts_s: Seconds of the lease: so long after this process was last seen another takes over.
        step: Called with the name of each step that is done.
        now: Seconds since 1970.
        clock: Seconds of a clock that is never set back, for the lease.
    """

    def __init__(
        self,
        base: Catalog,
        placement: Placement,
        store: ObjectStore | None,
        *,
        owner: str,
        publish: Publish = lambda _: None,
        restore: bool = True,
        lasts_s: float = LASTS_S,
        step: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._base, self._placement, self._name, self._lasts_s = base, placement, owner, lasts_s
        self._publish, self._restore, self._step, self._now = publish, restore, step, now
        self._writing = threading.Lock()
        self._exports = Exports()
        self._untold: Commit | None = None
        self._stopped = False
        self._loaded = 0
        self._held = hold(base, State(), placement)
        self._lease = None if store is None else Lease(store, LEASE, owner, lasts_s, clock)
        if self._lease is not None and store is not None:
            self._history = History(store, self._lease, step)
            self._snapshots = Snapshotter(self._history, self._writing, self._led)
            self._leadership = Leadership(self._lease, lasts_s, self._take, self._keep_on)

    @property
    def state(self) -> Literal["leading", "standby", "stopped"]:
        """Whether it may write and be read; `stopped` with a `problem` where its store is damaged."""
        if self._stopped or (self._lease is not None and self._leadership.damaged):
            return "stopped"
        if self._lease is None or (self._lease.held and self._loaded == self._lease.fence):
            return "leading"
        return "standby"

    @property
    def owner(self) -> str | None:
        """The name of the process that leads, as far as this one knows."""
        return self._name if self._lease is None else self._lease.holder

    @property
    def problem(self) -> str | None:
        """Why nobody leads, for the operator; None where all is well."""
        return None if self._lease is None else self._leadership.problem

    @property
    def registry(self) -> Registry:
        """Where every model is served."""
        return self._held.registry

    @property
    def sources(self) -> Mapping[str, Source]:
        """Where each config comes from, by id."""
        return self._held.sources()

    def start(self) -> None:
        """Lead, or stand by while another does or the store cannot be reached.

        Raises:
            StoreDamaged: The store does not hold what it should.
            LeaseDamaged: Nor does its lease.
            ObjectStoreError: The store refuses this process, or is not there.
        """
        if self._lease is not None:
            self._leadership.start()

    def stop(self) -> None:
        """End; another may lead at once. A write that is being done is waited for."""
        if self._lease is not None:
            self._leadership.stop()
            self._snapshots.stop()
        with self._writing:
            self._stopped = True
            if self._lease is not None:
                try:
                    self._lease.release()
                except ObjectStoreError as error:
                    log.warning("the lease ends by itself: %s", error)

    def look(self) -> None:
        """Do now what the thread of the lease does several times in the time that it lasts."""
        if self._lease is not None:
            self._leadership.look()

    def check_leading(self) -> None:
        """Refuse what only the leader may answer: another may know more.

        Raises:
            InferenceError: `CONFIG_STANDBY`.
        """
        if self.state != "leading":
            raise standby(self.owner, self._name)

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
            InferenceError: `CONFIG_STANDBY`.
        """
        self.check_leading()
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
        if self._lease is None:
            raise store_required()
        self.check_leading()
        with self._writing:
            self.check_leading()
            held, now = self._held, self._now()
            if (known := request.answered(held.state, now)) is not None:
                return known
            plan = plan_of(held)
            answer = plan.answer_at(held.epoch + plan.changes, self._name)
            if not plan.changes and request.key is None:
                return answer
            commit = plan.commit(held, request.kept(answer, now))
            after = held.after(commit, plan.config, self._placement)
            self._step("validated")
            self._keep(commit)
            self._held = after
            self._step("registered")
            return self._tell(plan, answer, request) if plan.changes else answer

    def _keep(self, commit: Commit) -> None:
        try:
            self._history.commit(commit)
        except (LeaseLost, ObjectStoreError) as error:
            log.error("a write was not kept: %s", error)
            raise (
                store_failed() if isinstance(error, ObjectStoreError) else standby(self.owner, self._name)
            ) from error

    def _tell(self, plan: Plan, answer: Answer, request: WriteRequest) -> Answer:
        warning = tell(self._publish, plan.change(self._held))
        self._step("published")
        if warning is None:
            return answer
        answer = Answer(answer.status, {**answer.body, "warnings": [warning]})
        self._held = replace(self._held, state=self._held.state.answering(request.kept(answer, self._now())))
        return answer

    def _take(self) -> None:
        """Try to lead; what another has written meanwhile is read before anything is written here."""
        assert self._lease is not None
        # Under the lock: a write that began under an earlier lease must not be named under this one.
        with self._writing:
            if not self._lease.acquire():
                return
            fence = self._lease.fence
            try:
                with renewed(self._lease, self._lasts_s):
                    state = self._history.load(restore=self._restore)
                    self._held = hold(self._base, state, self._placement, self._held)
            except StoreDamaged:
                self._lease.release()
                raise
            self._restore, self._untold, self._loaded = True, self._history.newest, fence
            log.info("%s leads, at epoch %d", self._name, state.epoch)

    def _keep_on(self) -> None:
        """Do what is due while the lease is held; called by its thread."""
        self._snapshots.look()
        with self._writing:
            newest, self._untold = self._untold, None
            # What was written here since then was told, and leads followers past it.
            if (
                newest is not None
                and newest.epoch == self._held.epoch
                and (change := change_of(newest, self._held)) is not None
            ):
                tell(self._publish, change)

    def _led(self) -> tuple[int, State] | None:
        return (self._loaded, self._held.state) if self.state == "leading" else None

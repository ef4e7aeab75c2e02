"""Puts a backup into a log: at the start where the log is empty, or by `sie config restore`."""

from __future__ import annotations

import logging
import uuid
from typing import Final

from sie_cluster.config_service.store.logs import ConfigLog
from sie_cluster.config_service.store.records import RESTORE, Backup, Restore, Write, key_of, pack
from sie_cluster.config_service.store.state import State
from sie_core.contracts import QueueError

ROUNDS: Final = 1000
"""How often others may write in between before a restore gives up."""

log = logging.getLogger(__name__)


def restore(onto: ConfigLog, backup: Backup | None, *, replace: bool = False) -> State:
    """Append what the backup holds and the log does not; return the state afterwards.

    In an empty log a mark says that models may be missing until the last one is there: services are not ready
    meanwhile, and whoever starts goes on with a restore that was cut. Several may do it at once.

    Args:
        onto: Open.
        backup: What it should hold; None has a restore that was cut end as it is.
        replace: Whether models of the log that the backup does not hold, or holds with another config, are replaced,
            and records that cannot be read.

    Raises:
        QueueError: The broker failed; models before it are restored.
        StoreDamaged: The log cannot be read.
    """
    wanted = {} if backup is None else {each.write.model_id: each.write for each in backup.entries}
    too_large: set[str] = set()
    for _ in range(ROUNDS):
        damaged: list[str] = []
        state = State().after(onto.read(), damaged if replace else None)
        left = {id_: each for id_, each in _left(state, wanted, damaged, replace).items() if id_ not in too_large}
        try:
            if left and not state.writes and not state.restoring:
                onto.append(RESTORE, pack(Restore(pending=True)), after=state.epoch)
                continue
            for key, write in left.items():
                try:
                    epoch = onto.append(_key(key, damaged), pack(write), after=state.epoch)
                except QueueError as error:
                    if error.failure != "TOO_LARGE":
                        raise
                    log.error("%s is not restored: the broker carries no config of its size", write.model_id)
                    too_large.add(key)
                else:
                    state = state.written(epoch, write)
            if state.restoring:
                onto.append(RESTORE, pack(Restore(pending=False)), after=state.epoch)
                continue
        except QueueError as error:
            if error.failure != "CONFLICT":
                raise
        else:
            return state
    raise QueueError("UNAVAILABLE", "Others write all the time; the restore is not complete. Start it again.")


def _left(state: State, wanted: dict[str, Write], damaged: list[str], replace: bool) -> dict[str, Write]:
    """Return what is to be appended yet, by model, or by key for records that cannot be read."""
    if not replace:
        return {id_: _again(each) for id_, each in wanted.items() if id_ not in state.writes}
    differing = {id_: _again(each) for id_, each in wanted.items() if state.models.get(id_) != each.model}
    surplus = [id_ for id_ in state.models if id_ not in wanted]
    known = {key_of(id_) for id_ in differing}
    removed = [*surplus, *(key for key in damaged if key not in known)]
    return {**differing, **{id_: Write(id=uuid.uuid4().hex, model_id=id_) for id_ in removed}}


def _again(write: Write) -> Write:
    return write.model_copy(update={"id": uuid.uuid4().hex})


def _key(name: str, damaged: list[str]) -> str:
    return name if name in damaged else key_of(name)

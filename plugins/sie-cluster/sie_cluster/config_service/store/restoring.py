"""Puts a backup into a log: at the start where the log is empty, or by `sie config restore`."""

from __future__ import annotations

import logging
import uuid
from typing import Final

from sie_cluster.config_service.store.logs import ConfigLog
from sie_cluster.config_service.store.records import Backup, StoredModel, Write, key_of, pack
from sie_cluster.config_service.store.state import State, restored
from sie_core.contracts import QueueError

ROUNDS: Final = 1000
"""How often others may write in between before a restore gives up."""

log = logging.getLogger(__name__)


def restore(onto: ConfigLog, backup: Backup, *, replace: bool = False) -> State:
    """Append what the backup holds and the log does not; return the state afterwards.

    In an empty log a mark says that models may be missing until the last one is there: services are not ready
    meanwhile, and whoever starts goes on with a restore that was cut. Several may do it at once.

    Args:
        onto: Open.
        backup: What it should hold.
        replace: Whether models of the log that the backup does not hold, or holds with another config, are replaced.

    Raises:
        QueueError: The broker failed; models before it are restored.
        StoreDamaged: The log cannot be read.
    """
    wanted = {each.write.model_id: each.write.model for each in backup.entries if each.write.model is not None}
    for _ in range(ROUNDS):
        state = State().after(onto.read())
        left = _left(state, wanted, replace)
        try:
            if left and not state.writes and not state.restoring:
                key, payload = restored(pending=True)
                onto.append(key, payload, after=state.epoch)
                continue
            for model_id, model in left.items():
                write = Write(id=uuid.uuid4().hex, model_id=model_id, model=model)
                epoch = onto.append(key_of(model_id), pack(write), after=state.epoch)
                state = state.written(epoch, write)
            if state.restoring:
                key, payload = restored(pending=False)
                onto.append(key, payload, after=state.epoch)
                continue
        except QueueError as error:
            if error.failure != "CONFLICT":
                raise
        else:
            return state
    raise QueueError("UNAVAILABLE", "Others write all the time; the restore is not complete. Start it again.")


def _left(state: State, wanted: dict[str, StoredModel], replace: bool) -> dict[str, StoredModel | None]:
    if not replace:
        return {id_: model for id_, model in wanted.items() if id_ not in state.writes}
    differing = {id_: model for id_, model in wanted.items() if state.models.get(id_) != model}
    return {**differing, **dict.fromkeys(state.models.keys() - wanted.keys())}

"""Everything that was written, as one immutable value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sie_cluster.config_service.store.records import (
    Backup,
    Entry,
    KeptAnswer,
    Restore,
    StoreDamaged,
    StoredModel,
    Write,
    key_of,
    pack,
    unpack,
)
from sie_core.contracts import Reading, Record

KEPT_S = 3600.0
"""How long an answer is kept for a repeated request."""
MOST_KEPT = 32
"""Answers kept with one model: they bound its record, which is one message."""


@dataclass(frozen=True, slots=True)
class State:
    """What the log of a config service holds at one epoch."""

    epoch: int = 0
    """The number of the last record."""
    writes: Mapping[str, Write] = field(default_factory=dict)
    """The last one of each model."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """Of these."""
    models: Mapping[str, StoredModel] = field(default_factory=dict)
    """Without those that were removed."""
    restoring: bool = False
    """Whether models of a backup may be missing yet."""

    def after(self, reading: Reading, damaged: list[str] | None = None) -> State:
        """Return this with what a log holds beyond it.

        Args:
            reading: It.
            damaged: Takes the keys of records that cannot be read.

        Raises:
            StoreDamaged: A record cannot be read, and `damaged` is None.
        """
        restoring, entries = self.restoring, []
        for record in reading.records:
            try:
                read = unpack(record.key, record.payload)
            except StoreDamaged:
                if damaged is None:
                    raise
                damaged.append(record.key)
                continue
            if isinstance(read, Restore):
                restoring = read.pending
            else:
                entries.append(Entry.model_construct(epoch=record.sequence, write=read))
        return self._with(reading.last, entries, restoring)

    def written(self, epoch: int, write: Write) -> State:
        """Return this after one more write."""
        return self._with(epoch, [Entry.model_construct(epoch=epoch, write=write)], self.restoring)

    def follows(self, backup: Backup) -> bool:
        """Whether this holds every write of a backup, or a later one of the same model."""
        for entry in backup.entries:
            id_ = entry.write.model_id
            if id_ not in self.writes:
                if entry.write.model is not None:
                    return False
            elif self.writes[id_].id != entry.write.id and self.epochs[id_] <= backup.epoch:
                return False
        return self.epoch >= backup.epoch

    def answer(self, key: str, now: float) -> KeptAnswer | None:
        """Return the answer that is kept under an idempotency key; `now` in seconds since 1970."""
        for write in self.writes.values():
            for answer in write.answers:
                if answer.key == key and now - answer.at < KEPT_S:
                    return answer
        return None

    def answers_with(self, model_id: str, answer: KeptAnswer | None) -> list[KeptAnswer]:
        """Return the answers to keep with the next write of a model."""
        before = self.writes.get(model_id)
        answers = [*([] if before is None else before.answers), *([] if answer is None else [answer])]
        if not answers:
            return answers
        newest = max(each.at for each in answers)
        return [each for each in answers if newest - each.at < KEPT_S][-MOST_KEPT:]

    def backup(self) -> Backup:
        """Return everything as one record."""
        entries = [Entry.model_construct(epoch=self.epochs[id_], write=write) for id_, write in self.writes.items()]
        return Backup.model_construct(epoch=self.epoch, entries=entries)

    def _with(self, epoch: int, entries: Iterable[Entry], restoring: bool) -> State:
        writes, epochs, models = dict(self.writes), dict(self.epochs), dict(self.models)
        for entry in entries:
            write = entry.write
            writes[write.model_id], epochs[write.model_id] = write, entry.epoch
            models.pop(write.model_id, None)
            if write.model is not None:
                models[write.model_id] = write.model
        return State(epoch, writes, epochs, models, restoring)


def reading_of(backup: Backup, after: int = 0) -> Reading:
    """Return a backup as what a log holds beyond a number."""
    return Reading(
        backup.epoch,
        tuple(
            Record(key_of(each.write.model_id), pack(each.write), each.epoch)
            for each in backup.entries
            if each.epoch > after
        ),
    )

"""Everything that was written, as one immutable value, and what a commit makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sie_cluster.config_service.history.records import Commit, KeptAnswer, Snapshot, StoredModel

KEPT_S = 3600.0
"""How long an answer is kept for a repeated request."""
MOST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class State:
    """What the store holds after a commit."""

    epoch: int = 0
    number: int = 0
    models: Mapping[str, StoredModel] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)
    """Of the last change of each model here, and of those whose removal brought the base's config back."""
    answers: Mapping[str, KeptAnswer] = field(default_factory=dict)
    """By idempotency key, the oldest first."""

    def after(self, commit: Commit) -> State:
        """Return what a commit makes of this.

        Raises:
            ValueError: It does not follow this state.
        """
        if commit.number != self.number + 1 or commit.epoch != self.epoch + (commit.model_id is not None):
            raise ValueError(
                f"commit {commit.number} of epoch {commit.epoch} does not follow commit {self.number} of epoch "
                f"{self.epoch}"
            )
        models, epochs = dict(self.models), dict(self.epochs)
        if commit.model_id is not None:
            models.pop(commit.model_id, None)
            epochs.pop(commit.model_id, None)
            if commit.model is not None:
                models[commit.model_id] = commit.model
            if commit.model is not None or commit.falls_back:
                epochs[commit.model_id] = commit.epoch
        answers = self.answers if commit.answer is None else _kept({**self.answers, commit.answer.key: commit.answer})
        return State(commit.epoch, commit.number, models, epochs, answers)

    def answering(self, answer: KeptAnswer | None) -> State:
        """Return this with an answer as it was given in the end."""
        return self if answer is None else replace(self, answers={**self.answers, answer.key: answer})

    def answer(self, key: str, now: float) -> KeptAnswer | None:
        """Return the answer that is kept under a key; `now` in seconds since 1970."""
        found = self.answers.get(key)
        return found if found is not None and now - found.at < KEPT_S else None

    def snapshot(self) -> Snapshot:
        """Return everything as a record."""
        return Snapshot.model_construct(
            number=self.number,
            epoch=self.epoch,
            models=self.models,
            epochs=self.epochs,
            answers=list(self.answers.values()),
        )


def restored(snapshot: Snapshot) -> State:
    """Return the state that a snapshot holds."""
    answers = {each.key: each for each in snapshot.answers}
    return State(snapshot.epoch, snapshot.number, snapshot.models, snapshot.epochs, answers)


def _kept(answers: Mapping[str, KeptAnswer]) -> Mapping[str, KeptAnswer]:
    """Drop the answers that are too old beside the newest, and the oldest of too many."""
    newest = max(each.at for each in answers.values())
    young = sorted((each for each in answers.values() if newest - each.at < KEPT_S), key=lambda each: each.at)
    return {each.key: each for each in young[-MOST_KEPT:]}

"""A write as it was asked for, and the answer that a repeated one gets."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sie_cluster.config_service.refusals import refusal
from sie_cluster.config_service.results import Answer
from sie_cluster.config_service.store.records import KeptAnswer
from sie_cluster.config_service.store.state import State
from sie_cluster.config_service.writing.bodies import check_key


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One request to write.

    Raises:
        InferenceError: `INVALID_INPUT`: its idempotency key is none.
    """

    method: str
    path: str
    body: bytes
    key: str | None
    """The idempotency key, if any."""

    def __post_init__(self) -> None:
        check_key(self.key)

    @property
    def fingerprint(self) -> str:
        """What two requests of one key must have in common."""
        return hashlib.sha256(f"{self.method} {self.path}\n".encode() + self.body).hexdigest()

    def answered(self, state: State, now: float) -> Answer | None:
        """Return the answer that this request got before; `now` in seconds since 1970.

        Raises:
            InferenceError: `IDEMPOTENCY_MISMATCH`: its key was used for another request.
        """
        kept = None if self.key is None else state.answer(self.key, now)
        if kept is None:
            return None
        if kept.fingerprint != self.fingerprint:
            told = f"Idempotency-Key {self.key}: it was used for another request within the hour; take a new one."
            raise refusal("IDEMPOTENCY_MISMATCH", told, param="Idempotency-Key")
        return Answer(kept.status, kept.body)

    def kept(self, answer: Answer, now: float) -> KeptAnswer | None:
        """Return what is kept of an answer; None without a key."""
        if self.key is None:
            return None
        body = dict(answer.body)
        return KeptAnswer(key=self.key, fingerprint=self.fingerprint, status=answer.status, body=body, at=now)

"""The records of a store: models, answers that are kept for repeated requests, commits, snapshots and their head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, lt=2**53)]


class Record(BaseModel):
    """A closed map of exactly these types, that changes no more."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", protected_namespaces=())


class StoredModel(Record):
    """A model's config."""

    text: str
    """Its YAML."""
    content: dict[str, Any]
    """What the YAML says, so that a start need not parse it."""


class KeptAnswer(Record):
    """The answer to a request that gave an idempotency key."""

    key: str
    fingerprint: str
    """Of the request's method, path and body."""
    status: int
    body: dict[str, Any]
    at: float
    """Seconds since 1970."""


class Pointer(Record):
    """Another object of the store."""

    key: str
    sha256: str
    number: Count
    """Of the commit, or of the last commit that the snapshot holds."""


class Commit(Record):
    """One write: a change of one model, an answer to be kept, or both."""

    format: Literal[1] = 1
    number: Count
    """Counts the commits of a store, from 1."""
    epoch: Count
    """After it. A change counts; an answer alone does not."""
    model_id: str | None = None
    """The model that it changes, if any."""
    model: StoredModel | None = None
    """What the model's config is afterwards; None: removed."""
    falls_back: bool = False
    """Whether the config that was removed hid one of the base."""
    answer: KeptAnswer | None = None
    parent: Pointer | None = None
    """The commit before; None: it began with nothing."""


class Snapshot(Record):
    """Everything as it was after a commit."""

    format: Literal[1] = 1
    number: Count
    epoch: Count
    models: dict[str, StoredModel]
    epochs: dict[str, Count]
    answers: list[KeptAnswer]


class Head(Record):
    """What the lease guards: the last commit, and the snapshot to begin with."""

    format: Literal[1] = 1
    epoch: Count = 0
    number: Count = 0
    commit: Pointer | None = None
    snapshot: Pointer | None = None


def encode(record: Record) -> bytes:
    """Write a record as JSON."""
    return orjson.dumps(record, default=vars)


def fits_json(content: Mapping[str, Any]) -> bool:
    """Whether JSON can say what a config says, as every follower is told it."""
    try:
        orjson.dumps(content, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except (TypeError, RecursionError):
        return False
    return True

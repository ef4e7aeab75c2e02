"""What a config service keeps: the last write of each model, with the answers to repeated requests."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sie_core.catalog.configs.reading import describe_problems

MOST_BYTES: Final = 1 << 25
"""Of a record that is unpacked; a config has 1 MiB as text, and about as much again as content."""

Count = Annotated[int, Field(ge=0, lt=2**53)]


class StoreDamaged(Exception):
    """The store holds what this release cannot read; the message names it and the remedy."""


class _Closed(BaseModel):
    """A closed map of exactly these types, that changes no more."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", protected_namespaces=())


class StoredModel(_Closed):
    """A model's config."""

    text: str
    """Its YAML."""
    content: dict[str, Any]
    """What the YAML says, so that a start need not parse it."""


class KeptAnswer(_Closed):
    """The answer to a request that gave an idempotency key."""

    key: str
    fingerprint: str
    """Of the request's method, path and body."""
    status: int
    body: dict[str, Any]
    at: float
    """Seconds since 1970."""


class Write(_Closed):
    """The last write of one model."""

    format: Literal[2] = 2
    id: str
    """Of this write alone: its writer finds it again where the broker's answer was lost."""
    model_id: str
    model: StoredModel | None = None
    """None: removed."""
    answers: list[KeptAnswer] = []
    """To the requests that changed this model within the hour, the oldest first."""


class Restore(_Closed):
    """Stands beside the models while a backup is read into an empty log."""

    format: Literal[2] = 2
    pending: bool
    """Whether models may be missing yet."""


class Entry(_Closed):
    """A write with the epoch that it made."""

    epoch: Count
    write: Write


class Backup(_Closed):
    """Everything that was kept at one epoch, in one object."""

    format: Literal[2] = 2
    epoch: Count
    entries: list[Entry] = []


Parsed = TypeVar("Parsed", bound=_Closed)

RESTORE: Final = "restore"
"""The key of the `Restore` record; a model's key is a hash."""


def key_of(model_id: str) -> str:
    """Return the key of a model's writes: ids have characters that keys have not."""
    return hashlib.sha256(model_id.encode()).hexdigest()[:40]


def encode(record: _Closed) -> bytes:
    """Write a record as JSON."""
    return orjson.dumps(record, default=vars)


def pack(record: Write | Restore) -> bytes:
    """Write the record of a log: compressed, as a message takes less than a config may have."""
    return zlib.compress(encode(record), 1)


def unpack(key: str, payload: bytes) -> Write | Restore:
    """Read the record of a log.

    Raises:
        StoreDamaged: It is none, or one of a later release.
    """
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(payload, MOST_BYTES)
    except zlib.error as error:
        raise damaged(key, str(error)) from None
    return parse(Restore, text, key) if key == RESTORE else parse(Write, text, key)


def parse(kind: type[Parsed], text: bytes, where: str) -> Parsed:
    """Read a record.

    Raises:
        StoreDamaged: It is none, or one of a later release.
    """
    try:
        return kind.model_validate(orjson.loads(text))
    except ValidationError as error:
        raise damaged(where, "; ".join(describe_problems(error)[:3])) from None
    except orjson.JSONDecodeError as error:
        raise damaged(where, f"it is no JSON ({error.msg})") from None


def damaged(where: str, why: str) -> StoreDamaged:
    """Make the error of a record that cannot be read."""
    return StoreDamaged(
        f"{where} of the config store cannot be read by this release: {why:.300}. If a later release wrote it, run "
        "that one; else put a backup in its place (`sie config restore`)."
    )


def fits_json(content: Mapping[str, Any]) -> bool:
    """Whether JSON can say what a config says, as every follower is told it."""
    try:
        orjson.dumps(content, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except (TypeError, RecursionError):
        return False
    return True

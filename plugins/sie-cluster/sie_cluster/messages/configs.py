"""Configs on their way from a sidecar to its adapter process, and what that says of those in force.

A change of configs travels in pieces, so that work is held up by none of it: a whole snapshot, or what differs from the
last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sie_cluster.messages.export import ExportedModel
from sie_cluster.messages.frames import FrameError, decode, encode
from sie_core.contracts import ModelConfig

PIECE_BYTES = 128 << 10
"""About how much of configs is written, and sent, at a time: a millisecond."""


@dataclass(frozen=True, slots=True)
class ConfigState:
    """The configs that an adapter process serves."""

    epoch: int | None = None
    """The config service's; None before it has any, and without a config service."""
    hash: str | None = None
    """Of those of its bundle, as `bundle_config_hash` makes it."""


@dataclass(frozen=True, slots=True)
class ConfigPiece:
    """A part of a change."""

    epoch: int
    """The config service's, after the change."""
    whole: bool
    """Whether the change is a snapshot, in place of all that was known."""
    last: bool
    """Whether the change is complete with this piece."""
    models: Sequence[ExportedModel] = ()
    """New and changed ones."""
    removed: Sequence[str] = ()


def config_pieces(
    epoch: int, configs: Iterable[ModelConfig], removed: Sequence[str] = (), *, whole: bool
) -> Iterator[bytes]:
    """Write a change as frames, each when it is asked for.

    The configs are those of an export, whose paths are whole.
    """
    rows: list[str] = []
    size = 0
    for config in configs:
        row = json.dumps([config.id, config.content, config.text])
        if rows and size + len(row) > PIECE_BYTES:
            yield _piece(epoch, rows, (), whole=whole, last=False)
            rows, size = [], 0
        rows.append(row)
        size += len(row)
    yield _piece(epoch, rows, removed, whole=whole, last=True)


def read_config_piece(frame: bytes | memoryview) -> ConfigPiece:
    """Read a piece.

    Raises:
        FrameError: It is none.
    """
    head, sections = decode(frame)
    try:
        told: Any = json.loads(bytes(sections[0]))
        models = tuple(ExportedModel(*row) for row in told["models"])
        return ConfigPiece(
            int(head["epoch"]), bool(head["whole"]), bool(head["last"]), models, tuple(map(str, told["removed"]))
        )
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise FrameError(f"configs cannot be read ({type(error).__name__})") from None


def write_config_state(state: ConfigState) -> bytes:
    """Write which configs are in force; empty where there are none."""
    return b"" if state.epoch is None else encode({"config_epoch": state.epoch, "config_hash": state.hash})


def read_config_state(payload: bytes) -> ConfigState:
    """Read it.

    Raises:
        FrameError: It is none.
    """
    if not payload:
        return ConfigState()
    head, _ = decode(payload)
    epoch, hash_ = head.get("config_epoch"), head.get("config_hash")
    if not isinstance(epoch, int) or not isinstance(hash_, str):
        raise FrameError("what is said of configs is no epoch and hash")
    return ConfigState(epoch, hash_)


def _piece(epoch: int, rows: Sequence[str], removed: Sequence[str], *, whole: bool, last: bool) -> bytes:
    told = f'{{"models": [{",".join(rows)}], "removed": {json.dumps(list(removed))}}}'
    return encode({"epoch": epoch, "whole": whole, "last": last}, (told.encode(),))

"""What an adapter process tells of itself: its models, and whether it is ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgpack
from pydantic import TypeAdapter
from sie_sdk.wire import pack

from sie_cluster.messages.frames import decode, encode, read_as
from sie_core.contracts import ModelInfo

_MODEL, _MODELS = TypeAdapter(ModelInfo), TypeAdapter(list[ModelInfo])


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One adapter process, at one moment."""

    ready: bool
    problem: str | None = None
    """Why it is not ready, or not alive."""
    models: Sequence[ModelInfo] = ()


def encode_status(status: WorkerStatus) -> bytes:
    """Write a status."""
    head = {"ready": status.ready, "problem": status.problem}
    packed = [_packed(model) for model in status.models]
    return encode(head, (b"".join((msgpack.Packer().pack_array_header(len(packed)), *packed)),))


def decode_status(frame: bytes) -> WorkerStatus:
    """Read a status; fields of models that a newer process knows are passed over.

    Raises:
        FrameError: It is none.
    """
    head, sections = decode(frame)
    models = read_as(_MODELS, sections[0], "a status") if sections else []
    return WorkerStatus(bool(head.get("ready")), head.get("problem"), models)


def pack_model(model: ModelInfo) -> bytes:
    """Write the description of one model."""
    return pack(_MODEL.dump_python(model, mode="json", exclude_defaults=True))


def read_model(packed: bytes) -> ModelInfo:
    """Read it.

    Raises:
        FrameError: It is none.
    """
    return read_as(_MODEL, packed, "a model")


_known: dict[str, tuple[ModelInfo, bytes]] = {}
"""What was last written of each model: little changes from one status to the next."""


def _packed(model: ModelInfo) -> bytes:
    before = _known.get(model.id)
    if before is None or before[0] != model:
        before = _known[model.id] = (model, pack_model(model))
    return before[1]

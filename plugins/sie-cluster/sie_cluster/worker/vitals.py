"""What an adapter process tells its sidecar of its device and its models, for peers."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace

from sie_cluster.ipc.framing import FrameStream, Kind
from sie_cluster.messages.health import MOST_REPORTED, ModelReport, Vitals
from sie_core.contracts import EngineStatus, ModelInfo, ModelStatus

ROUNDED_BYTES = 16 << 20
"""Memory in use moves all the time; less than this is no news."""
USED_S = 60.0
"""A model that is in use was used a moment ago, always. Its last use is told to the minute, so that a status, which may
have hundreds of models, is not another one each second."""
_FIRST = ("loaded", "loading", "unloading", "failed")


class ToldState:
    """The status and the vitals, as sidecars were last told: each by one of its connections, which it pings by.

    Args:
        status: Writes the status.
        vitals: Writes the vitals.
    """

    def __init__(self, status: Callable[[], bytes], vitals: Callable[[], bytes]) -> None:
        self._status, self._vitals = status, vitals
        self._told = self._told_vitals = b""
        self._streams: dict[FrameStream, None] = {}

    def tell_by(self, stream: FrameStream) -> None:
        """Tell by a connection from now on, and all of it at first."""
        if stream not in self._streams:
            self.tell()  # the others
            self._streams[stream] = None
            stream.send(Kind.STATUS, 0, self._told)
            stream.send(Kind.VITALS, 0, self._told_vitals)

    def leave(self, stream: FrameStream) -> None:
        """Tell by a connection no more."""
        self._streams.pop(stream, None)

    def tell(self) -> None:
        """Tell what has changed."""
        status, vitals = self._status(), self._vitals()
        for stream in self._streams:
            if status != self._told:
                stream.send(Kind.STATUS, 0, status)
            if vitals != self._told_vitals:
                stream.send(Kind.VITALS, 0, vitals)  # behind the status, which peers are told with them
        self._told, self._told_vitals = status, vitals


def vitals_of(status: EngineStatus, url: str | None = None, preloaded: Container[str] = ()) -> Vitals:
    """Describe an engine; of very many models those that were loaded count most."""
    memory = status.memory
    known = [model for model in status.models if model.serves and model.model_state in _FIRST]
    known.sort(key=lambda model: _FIRST.index(model.model_state))
    return Vitals(
        status.device.gpu_type,
        None if memory is None else memory.used - memory.used % ROUNDED_BYTES,
        None if memory is None else memory.total,
        url,
        {model.id: _report(model, preloaded) for model in known[:MOST_REPORTED]},
    )


def to_the_minute(models: Iterable[ModelInfo]) -> list[ModelInfo]:
    """Give descriptions of models with their last use rounded down by `USED_S`."""
    return [
        model if model.last_used_at is None else replace(model, last_used_at=model.last_used_at // USED_S * USED_S)
        for model in models
    ]


def _report(model: ModelStatus, preloaded: Container[str]) -> ModelReport:
    kept = model.pinned or model.id in preloaded
    return ModelReport(model.model_state, model.memory_bytes, model.load_s, tuple(model.loras), kept=kept)

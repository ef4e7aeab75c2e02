"""The workers that a gateway hears of, and what they say of models."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from sie_core.cluster.messages.frames import FrameError, decode
from sie_core.cluster.messages.status import decode_status
from sie_core.cluster.subjects import health_subject
from sie_core.contracts import Message, ModelInfo

MISSED_BEATS = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """One of them, as it last said."""

    name: str
    up: bool
    """Whether its adapter process takes work."""
    status: bytes
    """What it says of itself; empty where its adapter process is away."""
    heard: float
    bundle: str
    held: int
    """Slices that it has taken and not answered."""
    config_hash: str | None = None
    """Of the configs that its adapter process serves, as `bundle_config_hash` makes it; None without a config
    service, and before it has any."""
    config_epoch: int | None = None
    """The config service's epoch of these."""

    @cached_property
    def models(self) -> dict[str, ModelInfo]:
        """What it says of its models; read when somebody asks."""
        try:
            return {model.id: model for model in decode_status(self.status).models} if self.status else {}
        except FrameError as error:
            log.warning("the status of the worker %s cannot be read: %s", self.name, error)
            return {}


class Workers:
    """All that were heard of lately.

    Args:
        beat_s: Between two heartbeats; who misses three is forgotten.
        on_up: Called when one takes work that did not.
        clock: Monotonic seconds.
    """

    def __init__(
        self, beat_s: float, on_up: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._beat_s, self._on_up, self._clock = beat_s, on_up, clock
        self._workers: dict[str, Worker] = {}

    def __iter__(self) -> Iterator[Worker]:
        late = self._clock() - MISSED_BEATS * self._beat_s
        self._workers = {name: worker for name, worker in self._workers.items() if worker.heard >= late}
        return iter(self._workers.values())

    def heard(self, message: Message) -> None:
        """Take a heartbeat."""
        try:
            worker = _read(message, self._clock())
        except (FrameError, ValueError, KeyError, TypeError, OverflowError) as error:
            log.warning("a heartbeat cannot be read: %s", error)
            return
        before = self._workers.get(worker.name)
        self._workers[worker.name] = worker
        if worker.up and (before is None or not before.up):
            self._on_up()

    def model(self, model: str) -> ModelInfo | None:
        """Return what is told of a model: by a worker that has it loaded, else by one that is at it, else by any."""
        told = [worker.models[model] for worker in self if model in worker.models]
        order = ("loaded", "loading", "unloading", "failed", "available")
        return min(told, key=lambda info: order.index(info.state), default=None)


def _read(message: Message, now: float) -> Worker:
    """Read a heartbeat, which must come by its worker's own subject."""
    head, (status,) = decode(message.payload)
    name, config_hash, config_epoch = str(head["worker"]), head.get("config_hash"), head.get("config_epoch")
    if message.subject != health_subject(name):
        raise FrameError(f"{name[:100]!r} does not belong to the subject {message.subject[:100]!r}")
    if not isinstance(config_hash, str | None) or not isinstance(config_epoch, int | None):
        raise FrameError("what it says of its configs is no hash and epoch")
    bundle, held = str(head.get("bundle", "")), int(head.get("held", 0))
    return Worker(name, bool(head.get("up")), bytes(status), now, bundle, held, config_hash, config_epoch)

"""Tells others: each change as it is made, and everything on demand."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import orjson

from sie_cluster.config_service.held import Held
from sie_cluster.config_service.results import Change
from sie_cluster.messages.export import bundles_by_profile, write_export

log = logging.getLogger(__name__)

Publish = Callable[[Change], str | None]


def tell(publish: Publish, change: Change) -> str | None:
    """Publish a change and return a warning where that failed: the change stands, and followers find it later."""
    try:
        return publish(change)
    except Exception:
        log.exception("the change of %s was not published", change.model_id)
        return "nats_publish_failed: the log says why; followers find the change when they look at the epoch next"


def change_of(held: Held) -> Change | None:
    """Return the last change, to be told once more; None where there is none."""
    model_id = next((id_ for id_, epoch in held.state.epochs.items() if epoch == held.epoch), None)
    if model_id is None:
        return None
    config = held.registry.catalog.configs.get(model_id)
    serving = {} if config is None else bundles_by_profile(config, held.registry)
    bundles = tuple(name for name in held.registry.bundles if any(name in each for each in serving.values()))
    text = None if config is None else config.text
    return Change(held.epoch, model_id, text, (), bundles, held.registry)


class Exports:
    """Writes exports, each once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[Held, bytes] | None = None

    def of(self, held: Held, at: float) -> bytes:
        """Return everything as JSON; `at` in seconds since 1970."""
        with self._lock:
            if self._last is None or self._last[0] is not held:
                told = write_export(held.registry, held.sources(), datetime.fromtimestamp(at, UTC).isoformat())
                self._last = held, orjson.dumps(told)
            return self._last[1]

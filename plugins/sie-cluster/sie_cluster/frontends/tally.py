"""What became of requests, told by front ends to the process with the device, which counts for all of them.

A tally is a msgpack list of rows, each the name of an event and what it counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from sie_sdk.wire import WireError, pack, unpack

from sie_core.api.http.metrics import HttpMetrics, Totals

MOST_ROWS = 1 << 16
"""Of one tally; a front end writes those of one turn of its event loop."""

log = logging.getLogger(__name__)


class Tally(HttpMetrics):
    """Counts by telling, with the end of the event loop's turn.

    Args:
        tell: Sends a tally.
    """

    def __init__(self, tell: Callable[[bytes], None]) -> None:
        super().__init__(CollectorRegistry(), _Totals(self._add))
        self._tell = tell
        self._rows: list[tuple[Any, ...]] = []

    def record(
        self, route: str, method: str, status: int, seconds: float, size: int, recorded_as: str | None = None
    ) -> None:
        """Count one request."""
        self._add("record", route, method, status, seconds, size, recorded_as)

    def failed(self, code: str, request_id: str) -> None:
        """Count a request that is answered with an error of the table."""
        self._add("failed", code, request_id)

    def _add(self, *row: Any) -> None:
        if not self._rows:
            asyncio.get_running_loop().call_soon(self._flush)
        self._rows.append(row)

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        self._tell(pack(rows))


class _Totals(Totals):
    def __init__(self, add: Callable[..., None]) -> None:
        super().__init__()
        self._add = add

    def answered(self, items: int, stages_s: Mapping[str, float]) -> None:
        """Count a request that was answered."""
        self._add("answered", items, dict(stages_s))


def taker(metrics: HttpMetrics) -> Callable[[bytes], None]:
    """Make what counts the tallies of front ends."""
    counted: Mapping[str, Callable[..., None]] = {
        "record": metrics.record,
        "failed": metrics.failed,
        "answered": metrics.totals.answered,
    }

    def take(told: bytes) -> None:
        try:
            rows: Any = unpack(told, most=16 * MOST_ROWS)
            for event, *row in rows:
                counted[event](*row)
        except (WireError, KeyError, TypeError, ValueError):
            log.exception("what a front end tells of its requests cannot be read")

    return take

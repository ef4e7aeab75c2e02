"""The metrics of every HTTP request."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from sie_core.contracts import Timing

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
"""Upper bounds of the buckets that count requests by their seconds."""
BYTES = (256, 1024, 4096, 16384, 65536, 2**18, 2**20, 2**22, 2**24, 2**26)
"""Upper bounds of the buckets that count bodies by their bytes."""


class Totals:
    """What became of the inference requests since the start; a watcher takes the difference of two descriptions."""

    def __init__(self) -> None:
        self._answered = self._items = 0
        self._seconds = Timing().stages_s
        self._errors: dict[str, dict[str, Any]] = {}

    def answered(self, items: int, stages_s: Mapping[str, float]) -> None:
        """Count a request that was answered, with the seconds of its stages."""
        self._answered += 1
        self._items += items
        for stage, seconds in stages_s.items():
            self._seconds[stage] += seconds

    def failed(self, code: str, request_id: str) -> None:
        """Count a request that failed."""
        count = self._errors[code]["count"] if code in self._errors else 0
        self._errors[code] = {"count": count + 1, "last_at": time.time(), "request_id": request_id}

    def describe(self) -> dict[str, Any]:
        """Describe them: counts, and the seconds that the answered ones spent in each stage."""
        seconds = {stage: round(spent, 6) for stage, spent in self._seconds.items()}
        return {"answered": self._answered, "items": self._items, "stage_seconds": seconds, "errors": self._errors}


class HttpMetrics:
    """The metrics of every request.

    Args:
        registry: Registers the metrics; a registry takes one set.
        totals: What the requests add to; None makes new ones.
    """

    def __init__(self, registry: CollectorRegistry, totals: Totals | None = None) -> None:
        self.totals = totals or Totals()
        self._errors = Counter(
            "sie_http_errors", "Requests refused or failed; `code` is that of the error.", ["code"], registry=registry
        )
        self._requests = Counter(
            "sie_http_requests", "Requests answered.", ("route", "method", "status"), registry=registry
        )
        self._seconds = Histogram(
            "sie_http_request_seconds", "From the first byte in to the last byte out.", ("route",),
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._bytes = Histogram("sie_http_response_bytes", "Bodies sent.", ("route",), buckets=BYTES, registry=registry)
        self._series = lru_cache(maxsize=1024)(self._find_series)

    def record(
        self, route: str, method: str, status: int, seconds: float, size: int, recorded_as: str | None = None
    ) -> None:
        """Count one request; `route` is its template, so that clients cannot create series by their paths.

        `recorded_as` is the id of its trace, where one is recorded: scrapers that read OpenMetrics are told of it.
        """
        requests, durations, sizes = self._series(route, method, status)
        requests.inc()
        durations.observe(seconds, None if recorded_as is None else {"trace_id": recorded_as})
        sizes.observe(size)

    def failed(self, code: str, request_id: str) -> None:
        """Count a request that is answered with an error of the table."""
        self._errors.labels(code).inc()
        self.totals.failed(code, request_id)

    def _find_series(self, route: str, method: str, status: int) -> tuple[Counter, Histogram, Histogram]:
        """Look up the series of these labels, once: that costs more than counting."""
        requests = self._requests.labels(route, method, str(status))
        return requests, self._seconds.labels(route), self._bytes.labels(route)

"""The metrics of every HTTP request."""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Histogram

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
"""Upper bounds of the buckets that count requests by their seconds."""
BYTES = (256, 1024, 4096, 16384, 65536, 2**18, 2**20, 2**22, 2**24, 2**26)
"""Upper bounds of the buckets that count bodies by their bytes."""


class HttpMetrics:
    """The metrics of every request.

    Args:
        registry: Registers the metrics; a registry takes one set.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "sie_http_requests", "Requests answered.", ("route", "method", "status"), registry=registry
        )
        self._seconds = Histogram(
            "sie_http_request_seconds", "From the first byte in to the last byte out.", ("route",),
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._bytes = Histogram("sie_http_response_bytes", "Bodies sent.", ("route",), buckets=BYTES, registry=registry)
        self._series = lru_cache(maxsize=1024)(self._find_series)

    def record(self, route: str, method: str, status: int, seconds: float, size: int) -> None:
        """Count one request; `route` is its template, so that clients cannot create series by their paths."""
        requests, durations, sizes = self._series(route, method, status)
        requests.inc()
        durations.observe(seconds)
        sizes.observe(size)

    def _find_series(self, route: str, method: str, status: int) -> tuple[Counter, Histogram, Histogram]:
        """Look up the series of these labels, once: that costs more than counting."""
        requests = self._requests.labels(route, method, str(status))
        return requests, self._seconds.labels(route), self._bytes.labels(route)

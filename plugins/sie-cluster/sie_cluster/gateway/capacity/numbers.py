"""What an autoscaler reads, made when it asks: by machine profile and bundle, zeros included.

Each help text says how to add the values of several gateways.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sie_cluster.gateway.capacity.admission import Admission
from sie_cluster.gateway.capacity.lanes import Labels
from sie_cluster.gateway.capacity.provisioning import Provisioning
from sie_cluster.messages.health import WorkerReport
from sie_cluster.queue.subjects import ANY_PROFILE

Refusal = tuple[str, str, str]
"""Machine profile, bundle and reason."""
MOST_SERIES = 1024
"""Of a metric; further ones are not told."""
ABOUT: Final = {
    "pending_demand": "Requests of the last 60 s that found no worker; 0 once one has come. Over gateways: sum.",
    "queue_age_seconds": "Seconds since the oldest request without an answer was sent. Over gateways: max.",
    "queued_cost": "Bytes of the items that are in the queue or at work. Over gateways: sum.",
    "worker_queue_depth": "Slices that workers hold, by their own machine profile. Every gateway hears all of them. "
    "Over gateways: max.",
    "active_lease_gpus": "GPUs that resource pools lease or wait for. Every gateway knows all of them. "
    "Over gateways: max.",
    "provisioning_responses": "Requests told that no worker is there yet, by 202 or 503. Over gateways: sum.",
    "rejected_requests": "Requests refused, by reason: provisioning (no worker yet), queue_full (by the gateway, the "
    "broker or a worker), profile (there is none of that name), places (SIE_GATEWAY_MAX_CONCURRENT_REQUESTS). "
    "Over gateways: sum.",
}
"""What each means, and how the values of several gateways add up."""
_LABELS: Final = ("machine_profile", "bundle")


class CapacityNumbers(Collector):
    """The metrics of one gateway that an autoscaler reads.

    Args:
        provisioning: Knows what has no worker.
        admission: Knows what is in flight.
        reports: Gives what the workers say that were heard of lately.
        known: Gives the machine profiles and the bundles of the cluster.
        leased: Gives the leased GPUs, by machine profile and bundle.
        refused: Gives the requests that were refused otherwise, by machine profile, bundle and reason.
        default_profile: The machine profile that requests without one are counted to; None counts them to `any`.
    """

    def __init__(
        self,
        provisioning: Provisioning,
        admission: Admission,
        reports: Callable[[], Iterable[WorkerReport]],
        known: Callable[[], tuple[Iterable[str], Iterable[str]]],
        *,
        leased: Callable[[], Mapping[Labels, int]] = dict,
        refused: Callable[[], Mapping[Refusal, int]] = dict,
        default_profile: str | None = None,
    ) -> None:
        self._provisioning, self._admission, self._reports = provisioning, admission, reports
        self._known, self._leased, self._refused = known, leased, refused
        self._default = default_profile or ANY_PROFILE
        self._seen: set[Labels] = set()

    def collect(self) -> Iterator[Metric]:
        """Read everything."""
        now = time.monotonic()
        profiles, bundles = self._known()
        reports = list(self._reports())
        self._see((profile, bundle) for profile in (self._default, *profiles) for bundle in bundles)
        self._see((report.profile, report.bundle) for report in reports)
        keys = list(self._admission.busy())
        held = Counter[Labels]()
        for report in reports:
            held[report.profile, report.bundle] += report.held
        demand = ((lane.labels, count) for lane, count in self._provisioning.demand.pending())
        oldest = ((key.lane.labels, now - next(iter(key.tickets)).since) for key in keys)
        costs = ((key.lane.labels, key.cost) for key in keys)
        yield self._family(GaugeMetricFamily, "pending_demand", self._by_labels(demand))
        yield self._family(GaugeMetricFamily, "queue_age_seconds", self._by_labels(oldest, max))
        yield self._family(GaugeMetricFamily, "queued_cost", self._by_labels(costs))
        yield self._family(GaugeMetricFamily, "worker_queue_depth", held)
        yield self._family(GaugeMetricFamily, "active_lease_gpus", self._leased())
        told_to_wait = self._by_labels(self._provisioning.refused.items())
        yield self._family(CounterMetricFamily, "provisioning_responses", told_to_wait)
        yield self._rejected(told_to_wait)

    def _see(self, labels: Iterable[Labels]) -> None:
        for each in labels:
            if len(self._seen) < MOST_SERIES:
                self._seen.add(each)

    def _family(
        self, kind: type[GaugeMetricFamily | CounterMetricFamily], name: str, values: Mapping[Labels, float]
    ) -> Metric:
        family = kind(f"sie_gateway_{name}", ABOUT[name], labels=_LABELS)
        self._see(values)
        for labels in sorted(self._seen):
            family.add_metric(labels, values.get(labels, 0.0))
        return family

    def _rejected(self, told_to_wait: Mapping[Labels, float]) -> Metric:
        name = "rejected_requests"
        family = CounterMetricFamily(f"sie_gateway_{name}", ABOUT[name], labels=(*_LABELS, "reason"))
        full = self._by_labels(self._admission.refused.items())
        self._see(full)
        for reason, refused in (("provisioning", told_to_wait), ("queue_full", full)):
            for labels in sorted(self._seen):
                family.add_metric((*labels, reason), refused.get(labels, 0.0))
        for others, count in sorted(self._refused().items()):
            family.add_metric(others, count)
        return family

    def _by_labels(
        self,
        values: Iterable[tuple[Labels, float]],
        join: Callable[[float, float], float] = lambda one, other: one + other,
    ) -> dict[Labels, float]:
        """Join values of equal labels; requests for any profile count to the default one."""
        joined: dict[Labels, float] = {}
        for (profile, bundle), value in values:
            labels = (self._default if profile == ANY_PROFILE else profile), bundle
            joined[labels] = join(joined[labels], value) if labels in joined else value
        return joined

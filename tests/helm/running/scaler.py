"""A ScaledObject as KEDA treats it, and the autoscaler of pods (HPA) that KEDA makes of it. The caller is the clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import httpx

STABLE_S = 300.0
"""An HPA goes down to the most that it wanted within this time."""
TOLERANCE = 0.1
"""An HPA leaves the number as it is while the metric is within this part of its target."""


@dataclass
class Scaler:
    """The number of pods of one ScaledObject; below 0, it begins with the least there may be."""

    spec: dict[str, Any]
    prometheus: str
    """Its URL, in place of the one of the triggers."""
    replicas: int = -1
    now: float = 0.0
    _active_at: float = 0.0
    _failures: dict[str, int] = field(default_factory=dict)
    _wanted: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.replicas = self.spec["minReplicaCount"] if self.replicas < 0 else self.replicas

    def poll(self, after_s: float | None = None) -> int:
        """Look at every trigger, after the polling interval or another time; return the number of pods then."""
        self.now += self.spec["pollingInterval"] if after_s is None else after_s
        values = {each["name"]: self._value(each) for each in self.spec["triggers"]}
        for name, value in values.items():
            self._failures[name] = 0 if value is not None else self._failures.get(name, 0) + 1
        failed = None in values.values()
        limits = {each["name"]: float(each["metadata"]["activationThreshold"]) for each in self.spec["triggers"]}
        if any(value is not None and value > limits[name] for name, value in values.items()):
            self._active_at = self.now
            self.replicas = max(self.replicas, 1)
        elif failed and self._fallen_back():
            self.replicas = self._fallback()
        idle = not failed and self.now - self._active_at >= self.spec["cooldownPeriod"]
        if idle and self.spec["minReplicaCount"] == 0:
            self.replicas = 0
        if self.replicas:
            self.replicas = self._horizontal(values)
        return self.replicas

    def _value(self, trigger: dict[str, Any]) -> float | None:
        """Ask a trigger's query; None where that is a failure."""
        metadata = trigger["metadata"]
        try:
            reply = httpx.get(f"{self.prometheus}/api/v1/query", params={"query": metadata["query"]}, timeout=10)
            found = reply.raise_for_status().json()["data"]["result"]
        except httpx.HTTPError:
            return None
        if len(found) > 1:
            return None
        value = float(found[0]["value"][1]) if found else math.nan
        if math.isfinite(value):
            return value
        return None if metadata["ignoreNullValues"] == "false" else 0.0

    def _fallen_back(self) -> bool:
        return max(self._failures.values()) >= self.spec["fallback"]["failureThreshold"]

    def _fallback(self) -> int:
        assert self.spec["fallback"]["behavior"] == "currentReplicasIfHigher"
        return max(self.replicas, int(self.spec["fallback"]["replicas"]))

    def _horizontal(self, values: dict[str, float | None]) -> int:
        """Give the number that the HPA sets: of all metrics the most, and fewer only if none is missing."""
        wanted = []
        for trigger in self.spec["triggers"]:
            value, target = values[trigger["name"]], float(trigger["metadata"]["threshold"])
            if value is None:
                wanted.append(self._fallback() if self._fallen_back() else self.replicas)
            elif abs(value / (target * self.replicas) - 1) <= TOLERANCE:
                wanted.append(self.replicas)
            else:
                wanted.append(math.ceil(value / target))
        most = min(self.spec["maxReplicaCount"], max(2 * self.replicas, self.replicas + 4))
        number = min(most, max(1, self.spec["minReplicaCount"], *wanted))
        self._wanted = [each for each in self._wanted if self.now - each[0] < STABLE_S] + [(self.now, number)]
        return max(number, min(self.replicas, max(each for _, each in self._wanted)))

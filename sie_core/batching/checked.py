"""Checks a batch policy against its contract: every unit comes back once, and an idle device never waits.

Policies may come from plugins, and a policy that loses a unit would hang a request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from inspect import signature
from math import isfinite
from typing import Any

from sie_core.batching.sharing.shares import Claims
from sie_core.contracts import Batch, BatchLimits, BatchPolicy, ModelLoadError, QueuedUnit
from sie_core.plugins import PluginSet

HOOK = "sie_batch_policies"


class BrokenPolicy(Exception):
    """A batch policy broke its contract; the message says how."""


def make_policy(plugins: PluginSet, name: str, limits: BatchLimits) -> CheckedPolicy:
    """Make a model's batch policy, of the kind that `SIE_BATCH_POLICY` names.

    Raises:
        PluginError: There is none of that name.
        ModelLoadError: It cannot be made.
    """
    factory = plugins.batch_policy(name)
    try:
        policy = factory(limits)
    except Exception as error:
        who = plugins.faulty(HOOK, name, f"cannot be made ({type(error).__name__})", error)
        raise ModelLoadError(
            "UNKNOWN", f"{who} cannot be made ({type(error).__name__}): SIE_BATCH_POLICY may name another one."
        ) from error
    return CheckedPolicy(policy, lambda error: plugins.faulty(HOOK, name, f"failed ({type(error).__name__})", error))


class CheckedPolicy:
    """Wraps a `BatchPolicy` and raises `BrokenPolicy` as soon as it breaks its contract.

    Counts the queued units itself. Exceptions of the wrapped policy pass through.

    Args:
        policy: The policy to check.
        report: Called with the exception when a queue is lost.
    """

    def __init__(self, policy: BatchPolicy, report: Callable[[BaseException], object] = lambda error: None) -> None:
        self._policy = policy
        self._report = report
        self._takes = signature(policy.take).parameters
        self._waiting: dict[Hashable, set[QueuedUnit]] = {}
        """The queued units of each request."""
        self.queued_units = self.queued_cost = 0
        self.claims = Claims()

    def add(self, units: Sequence[QueuedUnit]) -> None:
        """Queue units in this order."""
        for unit in units:
            self._waiting.setdefault(unit.request, set()).add(unit)
            self.queued_cost += unit.unit.cost
            self.claims.add(unit)
        self.queued_units += len(units)
        self._policy.add(units)

    def cancel(self, request: Hashable) -> int:
        """Drop every queued unit of `request`; return how many."""
        dropped = self._forget(request)
        if dropped:
            self._policy.cancel(request)
        return dropped

    def expire(self, now: float) -> set[Hashable]:
        """Drop the queued units of every request past its deadline; return those requests."""
        late = {request for request in self._policy.expire(now) if request in self._waiting}
        for request in late:
            self._forget(request)
        return late

    def take(
        self,
        now: float,
        device_busy: bool,
        most_s: float | None = None,
        preempting: bool = False,
        hold_s: float | None = None,
    ) -> Batch | None:
        """Form the next batch.

        Raises:
            BrokenPolicy: The batch holds units that do not wait, or mixes keys; units wait and an idle device gets
                no batch; or the policy has lost units.
        """
        if preempting and "preempting" not in self._takes:
            return None
        more: dict[str, Any] = {"preempting": True} if preempting else {}
        if hold_s is not None and "hold_s" in self._takes:
            more["hold_s"] = hold_s
        batch = self._policy.take(now, device_busy, most_s, **more)
        if batch is None:
            if self.queued_units and not device_busy and not preempting:
                raise BrokenPolicy(f"take gave an idle device no batch though {self.queued_units} units are queued")
            return None
        if not isinstance(batch, Batch) or not batch.units:
            raise BrokenPolicy(f"take returned {batch!r:.100}, which is no batch of units")
        if batch.predicted_s is not None:
            _seconds(batch.predicted_s, "predicted_s")
        return self._taken(batch)

    def ready_at(self, now: float) -> float | None:
        """Return when `take` with a busy device will give a batch; None where nothing is queued."""
        ready_at = self._policy.ready_at(now)
        return None if ready_at is None else _seconds(ready_at, "ready_at")

    def oldest(self) -> float | None:
        """Return when the oldest queued unit was queued; None where nothing is."""
        return _seconds(self._policy.oldest(), "oldest") if self.queued_units else None

    def record(self, batch: Batch, seconds: float) -> None:
        """Learn how long a batch ran."""
        self._policy.record(batch, seconds)

    def lose(self, error: BaseException) -> None:
        """Drop everything that is queued, and report `error`."""
        self._report(error)
        self._waiting.clear()
        self.queued_units = self.queued_cost = 0
        self.claims = Claims()

    def _taken(self, batch: Batch) -> Batch:
        requests, cost = set(), 0
        for queued in batch.units:
            self._remove(queued)
            if queued.unit.key != batch.key:
                raise BrokenPolicy(f"a batch of the key {batch.key!r:.100} holds a unit of {queued.unit.key!r:.100}")
            requests.add(queued.request)
            cost += queued.unit.cost
        self.queued_cost -= cost
        if self._policy.queued_units != self.queued_units:
            counted, told = self.queued_units, self._policy.queued_units
            raise BrokenPolicy(f"{counted} units are queued and queued_units says {told}: the others are lost")
        if batch.cost != cost or batch.requests != len(requests):
            return replace(batch, cost=cost, requests=len(requests))
        return batch

    def _remove(self, queued: QueuedUnit) -> None:
        waiting = self._waiting.get(queued.request) if isinstance(queued, QueuedUnit) else None
        if waiting is None or queued not in waiting:
            raise BrokenPolicy(
                f"a batch holds {queued!r:.100}, which does not wait: it ran, was dropped, or is no unit"
            )
        waiting.remove(queued)
        self.claims.remove(queued)
        self.queued_units -= 1
        if not waiting:
            del self._waiting[queued.request]

    def _forget(self, request: Hashable) -> int:
        dropped = self._waiting.pop(request, set())
        self.queued_units -= len(dropped)
        self.queued_cost -= sum(queued.unit.cost for queued in dropped)
        for queued in dropped:
            self.claims.remove(queued)
        return len(dropped)


def _seconds(value: object, what: str) -> float:
    if not isinstance(value, int | float) or not isfinite(value):
        raise BrokenPolicy(f"{what} is {value!r:.100}, and should be seconds")
    return value

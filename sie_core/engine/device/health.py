"""Tells a broken device from a broken model by what fails in a row. Pure: it is given the time, and its caller locks.

A model that never answered is broken itself, and a restart would not help it. Where models that did answer fail one
request after the other, and nothing on the device succeeds in between, what they have in common is broken.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

ENOUGH = 10
"""How many requests in a row must fail before anything is said: one client's bad requests come in bursts."""


@dataclass(slots=True)
class Row:
    """Requests that failed in a row."""

    failed: int = 0
    since: float = 0.0
    last: float = 0.0

    def add(self, now: float) -> None:
        """Count one more."""
        self.since = self.since if self.failed else now
        self.failed, self.last = self.failed + 1, now


@dataclass(slots=True)
class Failing:
    """What failed since something succeeded, on one device. Models are any objects, compared as they compare.

    Args:
        span_s: Over how long nothing but failures makes the device broken, in seconds; those that are further apart
            are rare requests, of which each may be bad.
    """

    span_s: float
    _rows: dict[Hashable, Row] = field(default_factory=dict)
    _worked: set[Hashable] = field(default_factory=set)
    _device: Row = field(default_factory=Row)
    _models: set[Hashable] = field(default_factory=set)
    """Those whose failures the device's row counts."""
    _needed: int = 0
    """How many they must be: two where several were loaded when the last of them failed."""

    def add(self, model: Hashable) -> None:
        """Know a loaded model."""
        self._rows[model] = Row()

    def remove(self, model: Hashable) -> None:
        """Forget an unloaded one."""
        self._rows.pop(model, None)
        self._worked.discard(model)
        if model in self._models:  # it goes; what its failures tell stays
            self._models.remove(model)
            self._needed -= 1

    def succeeded(self, model: Hashable) -> None:
        """Note that a batch of a model was finished."""
        if model in self._rows:
            self._worked.add(model)
            self._rows[model].failed = 0
            self._begin()

    def failed(self, model: Hashable, now: float) -> None:
        """Note that a request failed on the device with nothing beside it."""
        if model not in self._rows:
            return
        self._rows[model].add(now)
        if model not in self._worked:
            return
        needed = min(2, len(self._rows))
        unbelieved = len(self._models) < self._needed and needed < self._needed  # others were loaded, and did not fail
        if unbelieved or now - self._device.last > self.span_s:
            self._begin()
        self._device.add(now)
        self._models.add(model)
        self._needed = needed

    def _begin(self) -> None:
        """Begin the device's row afresh."""
        self._device.failed = 0
        self._models.clear()

    def device_problem(self) -> str | None:
        """Say that the device looks broken; with several models loaded one alone is not believed."""
        row = self._device
        lasted = row.last - row.since
        if row.failed < ENOUGH or lasted < self.span_s or len(self._models) < self._needed:
            return None
        return f"{row.failed} requests failed in a row within {lasted:.0f} s, of models that had answered before"

    def problem(self, model: Hashable) -> str | None:
        """Say that a model has been failing all the while."""
        row = self._rows.get(model)
        if row is None or row.failed < ENOUGH:
            return None
        return f"the last {row.failed} requests to it that ran failed; the server's log says why"

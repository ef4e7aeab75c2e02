"""Measures the memory of the device, within the operator's limit, and frees what can be freed without an unload.

It must not know models, nor who decides on them.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Sequence

from sie_core.contracts import Device, DeviceMemory, DeviceProbe
from sie_core.engine.residency.heap import trim_heap
from sie_core.memory import within_limit

log = logging.getLogger(__name__)

UNKNOWN = DeviceMemory(0, sys.maxsize)
"""What a probe that fails measures: nothing is unloaded for it."""


class MemoryGauge:
    """The memory of one device. Its methods are called from any thread and never raise.

    Args:
        device: The device.
        probes: Those registered; the one of the device's kind is asked.
        limit: Treat the device as no larger than this; in bytes.
    """

    def __init__(self, device: Device, probes: Sequence[DeviceProbe], limit: int | None) -> None:
        self._device = device
        self._probe = next(probe for probe in probes if probe.kind == device.kind)
        self._limit = limit
        self._broken = False

    def measure(self) -> DeviceMemory:
        """Measure now; a probe that fails is logged once and taken for a device without pressure."""
        try:
            memory = within_limit(self._probe.memory(self._device), self._limit)
        except Exception:
            if not self._broken:
                log.exception("the probe of %s cannot measure its memory; no model is unloaded for it", self._device)
            self._broken = True
            return UNKNOWN
        self._broken = False
        return memory

    def held(self) -> int:
        """Measure what this process holds, or, where nobody can tell, what is in use."""
        memory = self.measure()
        return memory.used if memory.own is None else memory.own

    def collect(self) -> None:
        """Collect garbage, which stops a large process for tenths of a second, and free caches."""
        gc.collect()
        self.free_caches()

    def free_caches(self) -> None:
        """Give back what the device's library and the C library keep for later use."""
        trim_heap()
        try:
            self._probe.free_caches(self._device)
        except Exception:
            log.exception("the probe of %s cannot free its caches", self._device)

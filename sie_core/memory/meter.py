"""Measures the device's memory within the operator's limit, and frees caches."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar

from sie_core.concurrency.pool import CpuPool
from sie_core.concurrency.threads import on_pool
from sie_core.contracts import Device, DeviceMemory, DeviceProbe, StageStatus
from sie_core.memory.heap import trim_heap

log = logging.getLogger(__name__)

Result = TypeVar("Result")

# The result of a probe that fails: with it nothing is evicted.
UNKNOWN = DeviceMemory(0, sys.maxsize)


class DeviceMemoryMeter:
    """The memory of one device. Its methods are called from any thread and never raise.

    Args:
        device: The device.
        probes: The registered probes; the one of the device's kind measures.
        limit: The operator's limit, in bytes; the device counts as no larger.
        report: Called when a probe fails, with its kind, its fault and the exception.
    """

    def __init__(
        self,
        device: Device,
        probes: Sequence[DeviceProbe],
        limit: int | None,
        report: Callable[[str, str, Exception], object] = lambda kind, problem, error: None,
    ) -> None:
        self._device = device
        self._probe = next(probe for probe in probes if probe.kind == device.kind)
        self._limit = limit
        self._report = report
        self._broken = False

    def measure(self) -> DeviceMemory:
        """Measure now. A probe that fails is logged once and gives `UNKNOWN`."""
        try:
            memory = within_limit(_checked(self._probe.memory(self._device)), self._limit)
        except Exception as error:
            self._report(self._device.kind, f"cannot measure memory ({type(error).__name__})", error)
            if not self._broken:
                log.exception("the probe of %s cannot measure its memory; no model is evicted for it", self._device)
            self._broken = True
            return UNKNOWN
        self._broken = False
        return memory

    def held(self) -> int:
        """Return the bytes in use by this process, or by all processes if the probe cannot tell them apart."""
        memory = self.measure()
        return memory.used if memory.own is None else memory.own

    def collect(self) -> None:
        """Collect garbage, which stops a large process for tenths of a second, and free caches."""
        gc.collect()
        self.free_caches()

    def free_caches(self) -> None:
        """Free the caches of the device's library and of the C library."""
        trim_heap()
        try:
            self._probe.free_caches(self._device)
        except Exception as error:
            self._report(self._device.kind, f"cannot free its caches ({type(error).__name__})", error)
            log.exception("the probe of %s cannot free its caches", self._device)


class MemoryThread:
    """Calls a meter on a separate thread, because a driver may hang. Used on the event loop.

    Args:
        meter: Measures the device.
        limit_s: Upper bound on a call in seconds.
    """

    def __init__(self, meter: DeviceMemoryMeter, limit_s: float) -> None:
        self._meter = meter
        self._limit_s = limit_s
        self._thread = CpuPool("sie-memory", 1)
        # The call that took too long; no other is queued behind it.
        self._hung: asyncio.Future[Any] | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread once its call returns, without waiting."""
        self._thread.close(0.0)

    def status(self) -> StageStatus:
        """Count the calls that wait for the thread, and whether it is at one."""
        return StageStatus(self._thread.waiting, self._thread.at_work)

    async def measure(self) -> DeviceMemory:
        """Measure now; returns `UNKNOWN` if the driver hangs."""
        return await self._call(self._meter.measure) or UNKNOWN

    async def collect(self) -> None:
        """Collect garbage and free caches."""
        await self._call(self._meter.collect)

    async def free_caches(self) -> None:
        """Free the caches of the device's library and of the C library."""
        await self._call(self._meter.free_caches)

    async def _call(self, call: Callable[[], Result]) -> Result | None:
        if self._hung is not None and not self._hung.done():
            return None
        task = asyncio.ensure_future(on_pool(self._thread, call))
        await asyncio.wait([task], timeout=self._limit_s)
        if task.done():
            return task.result()
        self._hung = task
        log.error("the device's memory could not be measured or freed in %g s", self._limit_s)
        return None


def growth(before: DeviceMemory, after: DeviceMemory) -> int | None:
    """Return the growth in bytes between two measurements, of this process if the probe reports it; None if unknown."""
    if UNKNOWN in (before, after):
        return None
    if before.own is not None and after.own is not None:
        return after.own - before.own
    return after.used - before.used


def within_limit(memory: DeviceMemory, limit: int | None) -> DeviceMemory:
    """Return the view with less memory free: the whole device, or this process within `limit` bytes.

    If the probe cannot tell this process's share, the use of the whole device counts against the limit.
    """
    if limit is None:
        return memory
    own = memory.used if memory.own is None else memory.own
    return min(memory, DeviceMemory(own, limit, own), key=lambda view: view.total - view.used)


def _checked(memory: object) -> DeviceMemory:
    if not isinstance(memory, DeviceMemory):
        raise TypeError(f"memory returned {memory!r:.100}, which is no DeviceMemory")
    if not (0 <= memory.used < inf and 0 < memory.total < inf and (memory.own is None or 0 <= memory.own < inf)):
        raise ValueError(f"memory returned {memory}, which cannot be")
    return memory

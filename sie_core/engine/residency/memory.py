"""Measures the device's memory within the operator's limit, frees caches, and estimates what a load will take."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, TypeVar

from sie_core.concurrency.pool import CpuPool
from sie_core.concurrency.threads import on_pool
from sie_core.contracts import Device, DeviceMemory, DeviceProbe, ModelCard, StageStatus
from sie_core.memory import weight_bytes, within_limit

log = logging.getLogger(__name__)

Result = TypeVar("Result")

UNKNOWN = DeviceMemory(0, sys.maxsize)
"""What a probe that fails measures: nothing is evicted for it."""
MOST_GROWTH = 1.5
"""How many times its weights a load may plausibly take. Growth beyond it holds imported libraries, or what batches
allocated meanwhile, and is not the model's."""
SMALL_BYTES = 64 << 20
"""Growth that is plausible for a model of any size: buffers, tokenizers."""


class DeviceMemoryMeter:
    """The memory of one device. Its methods are called from any thread and never raise.

    Args:
        device: The device.
        probes: Those registered; the one of the device's kind is asked.
        limit: Treat the device as no larger than this; in bytes.
        report: Told of a probe that fails: its kind, what it did, the exception.
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
        """Measure now; a probe that fails is logged once and taken for a device without pressure."""
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
        """Return the bytes this process holds, or, where the probe cannot tell, those in use."""
        memory = self.measure()
        return memory.used if memory.own is None else memory.own

    def collect(self) -> None:
        """Collect garbage, which stops a large process for tenths of a second, and free caches."""
        gc.collect()
        self.free_caches()

    def free_caches(self) -> None:
        """Free what the device's library and the C library keep for later use."""
        trim_heap()
        try:
            self._probe.free_caches(self._device)
        except Exception as error:
            self._report(self._device.kind, f"cannot free its caches ({type(error).__name__})", error)
            log.exception("the probe of %s cannot free its caches", self._device)


class MemoryThread:
    """Asks a meter on a thread of its own, since a driver may hang; used on the event loop.

    Args:
        meter: Measures the device.
        limit_s: How long a call may take.
    """

    def __init__(self, meter: DeviceMemoryMeter, limit_s: float) -> None:
        self._meter = meter
        self._limit_s = limit_s
        self._thread = CpuPool("sie-memory", 1)
        self._hung: asyncio.Future[Any] | None = None
        """The call that took too long; no other is queued behind it."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread once its call returns; nobody waits for it."""
        self._thread.close(0.0)

    def status(self) -> StageStatus:
        """Count the calls that wait for the thread, and whether it is at one."""
        return StageStatus(self._thread.waiting, self._thread.at_work)

    async def measure(self) -> DeviceMemory:
        """Measure now; `UNKNOWN` where the driver hangs."""
        return await self._call(self._meter.measure) or UNKNOWN

    async def collect(self) -> None:
        """Collect garbage and free caches."""
        await self._call(self._meter.collect)

    async def free_caches(self) -> None:
        """Free what the device's library and the C library keep for later use."""
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


@dataclass(frozen=True, slots=True)
class Need:
    """What a load will take.

    `sure` is whether that is known; where it is guessed, the load shows whether it fits.
    """

    bytes: int
    sure: bool


class Estimates:
    """What the models of one device take, in bytes: measured at each load, estimated before it.

    Args:
        device: Where they are loaded; on a CPU floating-point weights are taken to be computed in float32.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._measured: dict[str, int] = {}

    def before(self, model: str, card: ModelCard | None, precision: str) -> Need:
        """Estimate a load: what the last one took, else the tensors of its files, else the most any model took."""
        if model in self._measured:
            return Need(self._measured[model], True)
        if card is None:
            return Need(max(self._measured.values(), default=0), False)
        precision = "float32" if self._device.kind == "cpu" else precision
        return Need(weight_bytes(card.path, card.files, precision), True)

    def after(self, model: str, grown: int | None, weights: int, need: Need) -> int:
        """Record what a load took; return what the model takes.

        Args:
            model: Its id.
            grown: By how much the use of the device grew; None where the probe cannot tell.
            weights: What the adapter says its weights take; 0 where it does not.
            need: The estimate before the load.
        """
        known = weights or (need.bytes if need.sure else 0)
        plausible = grown is not None and (not known or grown <= max(MOST_GROWTH * known, known + SMALL_BYTES))
        self._measured[model] = max(grown or 0, weights) if plausible else self._measured.get(model) or known
        return self._measured[model]


def growth(before: DeviceMemory, after: DeviceMemory) -> int | None:
    """Return by how many bytes the use of a device grew, this process's own where the probe tells; None if unknown."""
    if UNKNOWN in (before, after):
        return None
    if before.own is not None and after.own is not None:
        return after.own - before.own
    return after.used - before.used


def trim_heap() -> None:
    """Have the C library return its free pages to the operating system, where it keeps them and can be told (glibc).

    Memory freed between blocks that stay counts as used otherwise: 20 MB after a load, the weights after an unload.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], object] | None:
    """Find it, once: ctypes leaves a reference cycle behind for every look-up."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def _checked(memory: object) -> DeviceMemory:
    if not isinstance(memory, DeviceMemory):
        raise TypeError(f"memory returned {memory!r:.100}, which is no DeviceMemory")
    if not (0 <= memory.used < inf and 0 < memory.total < inf and (memory.own is None or 0 <= memory.own < inf)):
        raise ValueError(f"memory returned {memory}, which cannot be")
    return memory

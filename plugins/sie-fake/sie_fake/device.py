"""An emulated accelerator: it runs the batches of all models in order on a stream of its own, as CUDA does.

What is launched on its stream of higher priority runs at once, and the usual one stands still meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

from sie_core.contracts import Device, DeviceMemory
from sie_fake.memory import MEMORY


class FakeProbe:
    """Finds one asynchronous device of kind `fake`; its priority keeps `SIE_DEVICE=auto` from taking it."""

    kind = "fake"
    priority = -1000

    def devices(self) -> list[Device]:
        """List the emulated device."""
        return [
            Device(
                "fake", name="emulated accelerator", asynchronous=True, priority_stream=lambda: streams().prioritised()
            )
        ]

    def memory(self, device: Device) -> DeviceMemory:
        """Count what the fakes on it were told to take, of 1 GiB."""
        return DeviceMemory(used=MEMORY.used, total=MEMORY.total, own=MEMORY.used)

    def free_caches(self, device: Device) -> None:
        """Do nothing: it keeps no memory that nobody uses."""


class Stream:
    """Runs batches in order; they pause while the stream of higher priority has any."""

    def __init__(self, name: str, priority: Stream | None = None) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._priority = priority
        self._batches = 0
        self._changed: threading.Condition = threading.Condition() if priority is None else priority._changed

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Launch a batch."""
        self._count(1)
        running = self._thread.submit(call, *arguments)
        running.add_done_callback(lambda _: self._count(-1))
        return running

    def pause(self, seconds: float) -> None:
        """Let a batch of this stream take so long."""
        with self._changed:
            while seconds > 0:
                stands_still, began = self._priority is not None and self._priority._batches, time.monotonic()
                self._changed.wait(seconds)
                if not stands_still:
                    seconds -= time.monotonic() - began

    def _count(self, change: int) -> None:
        with self._changed:
            self._batches += change
            self._changed.notify_all()


class Streams:
    """The two streams of the emulated accelerator."""

    def __init__(self) -> None:
        self._priority = Stream("fake-device-priority")
        self._default = Stream("fake-device", priority=self._priority)
        self._launching = threading.local()

    @property
    def current(self) -> Stream:
        """The stream that takes what this thread launches."""
        stream: Stream = getattr(self._launching, "stream", self._default)
        return stream

    @contextmanager
    def prioritised(self) -> Iterator[None]:
        """Have this thread launch on the stream of higher priority."""
        self._launching.stream = self._priority
        try:
            yield
        finally:
            self._launching.stream = self._default


@cache
def streams() -> Streams:
    """Return the streams of the emulated accelerator, which end with the process."""
    return Streams()

"""Copies of arrays and tensors between the host and a device, without waiting for the device."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sie_core.contracts import device_errors
from sie_pytorch.settings import tried

SLOTS: Final = 8
"""Pinned buffers that are kept: parts of a runner send up to four times a batch, and two batches are launched ahead."""
LEAST_BYTES, MOST_BYTES = 1 << 16, 1 << 22
"""Bytes of a buffer that is kept; larger copies, such as pictures, have one of their own, which PyTorch reuses."""
ALIGNMENT: Final = 16
"""Bytes that the place of an array in a buffer is a multiple of."""


class Marker(Protocol):
    """The part of `torch.cuda.Event` that copies need."""

    def record(self, stream: Any) -> None:
        """Mark the end of the work queued in a stream so far."""
        ...

    def query(self) -> bool:
        """Whether the device has reached the mark."""
        ...

    def synchronize(self) -> None:
        """Wait until it has."""
        ...


class Queue(Protocol):
    """What copies need of an asynchronous device: `CudaQueue`, or a recorder of its calls."""

    def pinned(self, size: int) -> torch.Tensor:
        """Make a uint8 buffer of so many bytes that the device copies from and to by itself."""
        ...

    def marker(self) -> Marker:
        """Make an event. A thread that waits for it sleeps: spinning ones keep the tokeniser from the cores."""
        ...

    def stream(self) -> Any:
        """Return the stream of the work of this thread. Another device may be the thread's current one."""
        ...

    def aside(self, after: Marker) -> AbstractContextManager[Any]:
        """Queue work in a second stream, which the context gives, beside what the first one is given after `after`."""
        ...


class CudaQueue:
    """The streams and events of PyTorch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._aside: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def pinned(self, size: int) -> torch.Tensor:
        """See `Queue.pinned`."""
        with torch.inference_mode(False):  # a tensor made in inference mode could not be filled outside
            return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def marker(self) -> Marker:
        """See `Queue.marker`."""
        event: Marker = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        return event

    def stream(self) -> torch.cuda.Stream:
        """See `Queue.stream`."""
        return torch.cuda.current_stream(self._device)

    @contextmanager
    def aside(self, after: Any) -> Iterator[torch.cuda.Stream]:
        """See `Queue.aside`."""
        with torch.cuda.stream(self._aside):
            self._aside.wait_event(after)
            yield self._aside


@dataclass(slots=True)
class Pinned:
    """A buffer, and the end of the last copy from or to it."""

    buffer: torch.Tensor
    marker: Marker


class PinnedBuffers:
    """Host buffers for copies, used in turn; one is used again once its last copy is done.

    Args:
        queue: Makes buffers and events.
        slots: How many are kept.
    """

    def __init__(self, queue: Queue, slots: int = SLOTS) -> None:
        self._queue, self._slots = queue, slots
        self._free: deque[Pinned] = deque()

    def take(self, size: int) -> Pinned:
        """Return a buffer of at least `size` bytes that no copy uses."""
        if size > MOST_BYTES:
            return self._made(size)
        rounded = max(LEAST_BYTES, 1 << (size - 1).bit_length())
        with suppress(IndexError):
            kept = self._free.popleft()
            if len(kept.buffer) < size:
                # PyTorch's allocator of pinned memory gives the old one to nobody before the copy from it is done.
                return self._made(rounded)
            done = kept.marker.query()
            if not done and len(self._free) + 1 >= self._slots:
                kept.marker.synchronize()
                done = True
            if done:
                return kept
            self._free.appendleft(kept)
        return self._made(rounded)

    def give_back(self, used: Pinned) -> None:
        """Keep a buffer whose copy is marked; any thread may call it."""
        if len(used.buffer) <= MOST_BYTES and len(self._free) < self._slots:
            self._free.append(used)

    def _made(self, size: int) -> Pinned:
        return Pinned(self._queue.pinned(size), self._queue.marker())


class Staged:
    """Arrays on their way to a device: each has its place there at once, and its content from `send` on.

    Made by `Transfers.stage`.
    """

    def __init__(self, transfers: Transfers, room: int, queue: Queue | None, buffers: PinnedBuffers | None) -> None:
        self._transfers, self._queue, self._buffers = transfers, queue, buffers
        self._taken = None if buffers is None or not room else buffers.take(room)
        host = torch.empty(room, dtype=torch.uint8) if self._taken is None else self._taken.buffer[:room]
        direct = self._taken is None and transfers.device.type == "cpu"
        self._host, self._bytes = host, host.numpy()
        self._there = host if direct else torch.empty(room, dtype=torch.uint8, device=transfers.device)
        self._filled = 0

    def add(self, arrays: Sequence[NDArray[Any]]) -> list[torch.Tensor]:
        """Give arrays their places; those beyond the room travel at once, in a copy of their own."""
        if self._filled + room_for(arrays) > len(self._host):
            return self._transfers.upload(arrays)
        return [self._add(array) for array in arrays]

    def _add(self, array: NDArray[Any]) -> torch.Tensor:
        start, dtype = self._filled, _dtype(array.dtype)
        stop = start + array.nbytes
        self._filled = start + room_for([array])
        self._bytes[start:stop].view(array.dtype).reshape(array.shape)[...] = array
        return self._there[start:stop].view(dtype).view(array.shape)

    def send(self) -> None:
        """Begin the copy; later work of the device sees the arrays complete."""
        if self._there is self._host or not self._filled:
            return
        self._there[: self._filled].copy_(self._host[: self._filled], non_blocking=self._taken is not None)
        if self._taken is not None and self._queue is not None and self._buffers is not None:
            self._taken.marker.record(self._queue.stream())
            self._buffers.give_back(self._taken)
            self._taken = None


def room_for(arrays: Sequence[NDArray[Any]]) -> int:
    """Return the bytes that arrays take in a buffer."""
    return sum(-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays)


@dataclass(frozen=True, slots=True)
class HostCopy:
    """A result on its way to the host."""

    tensor: torch.Tensor
    done: Marker | None
    """Event at the end of the copy; None if the result is already there."""
    landing: object = None
    """Keeps the buffer of `tensor` from being used again; None if it has none."""

    def land(self) -> None:
        """Wait until it is complete.

        Raises:
            DeviceLost: The device failed; asynchronous errors appear here.
        """
        if self.done is not None:
            with device_errors():
                self.done.synchronize()

    def wait(self) -> NDArray[Any]:
        """Return the result once it is complete, contiguous; of floating point numbers always in float32.

        Raises:
            DeviceLost: The device failed; asynchronous errors appear here.
        """
        self.land()
        dtype = torch.float32 if self.tensor.is_floating_point() else self.tensor.dtype
        # Pinned memory is scarce and its owner reuses it: a returned result must not hold it.
        array: NDArray[Any] = self.tensor.to(dtype, copy=self.done is not None).contiguous().numpy()
        return array


class Landing:
    """A buffer that results arrive in, used again once nothing holds it."""

    def __init__(self, taken: Pinned, buffers: PinnedBuffers) -> None:
        weakref.finalize(self, buffers.give_back, taken).atexit = False


class Results(Protocol):
    """Results of a batch on their way to the host."""

    def land(self) -> None:
        """Wait until they are complete.

        Raises:
            OutOfDeviceMemory: The device has no room for what is computed late.
            DeviceLost: The device failed; asynchronous errors appear here.
        """
        ...

    def wait(self) -> list[NDArray[Any]]:
        """Return them once they are complete; see `HostCopy.wait`."""
        ...


@dataclass(frozen=True, slots=True)
class HostCopies:
    """Results whose copies have begun."""

    copies: Sequence[HostCopy]

    def land(self) -> None:
        """See `Results.land`."""
        for copy in self.copies:
            copy.land()

    def wait(self) -> list[NDArray[Any]]:
        """See `Results.wait`."""
        return [copy.wait() for copy in self.copies]


class LateCopies:
    """Results whose size only the device knows: computed by the thread that waits for them, beside the next batch."""

    def __init__(self, work: Callable[[], HostCopies]) -> None:
        self._work: Callable[[], HostCopies] | None = work
        self._copies = HostCopies(())

    def land(self) -> None:
        """See `Results.land`."""
        if self._work is not None:
            with device_errors(), torch.inference_mode():
                self._copies = self._work()
            self._copies.land()
            self._work = None  # frees what it read, which the device has read by now

    def wait(self) -> list[NDArray[Any]]:
        """See `Results.wait`."""
        self.land()
        return self._copies.wait()


class Transfers:
    """Copies to and from one device.

    With CUDA they go through pinned memory: inputs in a batch's own stream, as they are small, and results in a second
    one, so that they leave while the device computes on. Elsewhere they are plain copies.

    Args:
        device: The device of the copies.
        queue: Its streams; None for those of CUDA, or for none elsewhere.
    """

    def __init__(self, device: torch.device, queue: Queue | None = None) -> None:
        self.device = device
        self._at_once = queue is None and device.type == "cuda" and not tried("copies")
        self._queue: Queue | None = CudaQueue(device) if queue is None and device.type == "cuda" else queue
        self._late = CudaQueue(device) if queue is None and device.type == "cuda" else queue
        self._one_late = threading.Lock()
        self._out = self._back = None
        if self._queue is not None:
            self._out, self._back = (
                PinnedBuffers(self._queue),
                PinnedBuffers(self._queue, 0 if self._at_once else SLOTS),
            )

    def stage(self, room: int) -> Staged:
        """Begin to collect arrays of up to `room` bytes (`room_for`), which travel in one copy."""
        return Staged(self, 0 if self._at_once else room, self._queue, self._out)

    def upload(self, arrays: Sequence[NDArray[Any]]) -> list[torch.Tensor]:
        """Copy arrays to the device in one transfer; later computations there see them complete."""
        staged = Staged(self, room_for(arrays), self._queue, self._out)
        there = [staged._add(array) for array in arrays]
        staged.send()
        return there

    def download(self, result: torch.Tensor) -> HostCopy:
        """Begin to copy `result`, as it is once all work queued so far is done."""
        (copy,) = self.download_all([result]).copies
        return copy

    def download_all(self, results: Sequence[torch.Tensor]) -> HostCopies:
        """Begin to copy results into one buffer, as they are once all work queued so far is done."""
        if self._queue is None:
            return HostCopies([HostCopy(result.cpu(), None) for result in results])
        return self._copied(self._queue, self._mark(self._queue), results)

    def download_late(self, work: Callable[[], Sequence[torch.Tensor]]) -> Results:
        """Have the thread that waits for results compute them, once all work queued so far is done.

        Args:
            work: Returns results that differ in size by what was computed. It may wait for the device.
        """
        queue = self._late
        if queue is None:
            return self.download_all(work())
        after = self._mark(queue)

        def late() -> HostCopies:
            # A wait for a count would be one for a later batch, if another thread queued work for that in between.
            with self._one_late, queue.aside(after):
                return self._copied(queue, after, work())

        return LateCopies(late)

    def _mark(self, queue: Queue) -> Marker:
        marker = queue.marker()
        marker.record(queue.stream())
        return marker

    def _copied(self, queue: Queue, after: Marker, results: Sequence[torch.Tensor]) -> HostCopies:
        assert self._back is not None
        sizes = [-(-result.nbytes // ALIGNMENT) * ALIGNMENT for result in results]
        taken = self._back.take(sum(sizes))
        landing, places = Landing(taken, self._back), torch.split(taken.buffer[: sum(sizes)], sizes)
        with queue.aside(after) as stream:
            copies = []
            for result, place in zip(results, places, strict=True):
                host = place[: result.nbytes].view(result.dtype).view(result.shape)
                host.copy_(result, non_blocking=True)
                if result.is_cuda:
                    result.record_stream(stream)
                copies.append(HostCopy(host, taken.marker, landing))
            taken.marker.record(stream)
        return HostCopies(copies)


@cache
def _dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype

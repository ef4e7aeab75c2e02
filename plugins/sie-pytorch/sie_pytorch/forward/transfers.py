"""Copies of arrays and tensors between the host and a device, without waiting for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sie_core.contracts import device_errors

SLOTS: Final = 8
"""Pinned buffers of a ring: a part of a runner sends up to four times a batch, and two batches are launched ahead."""
LEAST_BYTES, MOST_BYTES = 1 << 16, 1 << 20
"""Bytes of a buffer that is kept; larger uploads, such as pictures, have one of their own, which PyTorch reuses."""


@dataclass(frozen=True, slots=True)
class HostCopy:
    """A result on its way to the host."""

    tensor: torch.Tensor
    done: torch.cuda.Event | None
    """Event at the end of the copy; None if the result is already there."""

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
        tensor = self.tensor.float() if self.tensor.is_floating_point() else self.tensor
        array: NDArray[Any] = tensor.contiguous().numpy()
        # Pinned memory is scarce and its owner reuses it: a returned result must not hold it.
        return array.copy() if self.done is not None else array


class Marker(Protocol):
    """The part of `torch.cuda.Event` that a ring needs."""

    def record(self, stream: Any) -> None:
        """Mark the end of the work queued in a stream so far."""
        ...

    def query(self) -> bool:
        """Whether the device has reached the mark."""
        ...

    def synchronize(self) -> None:
        """Wait until it has."""
        ...


class PinnedRing:
    """Host buffers that a device copies from, used in turn; one is filled again once the copy from it is done.

    Args:
        pinned: Makes a uint8 buffer of so many bytes.
        marker: Makes an event.
        stream: Returns the stream of copies to a device. Another device may be the thread's current one.
    """

    def __init__(
        self,
        pinned: Callable[[int], torch.Tensor],
        marker: Callable[[], Marker],
        stream: Callable[[torch.device], Any],
    ) -> None:
        self._pinned, self._stream = pinned, stream
        self._buffers: list[torch.Tensor | None] = [None] * SLOTS
        self._markers = [marker() for _ in range(SLOTS)]
        self._turn = 0

    def send(self, arrays: Sequence[NDArray[Any]], device: torch.device) -> torch.Tensor:
        """Begin to copy arrays of one dtype, joined along their first axis, to a device; later work there sees them."""
        turn = self._turn
        self._turn = (turn + 1) % SLOTS
        size, buffer, marker = sum(array.nbytes for array in arrays), self._buffers[turn], self._markers[turn]
        if size > MOST_BYTES:
            buffer = self._pinned(size)
        elif buffer is None or len(buffer) < size:
            # PyTorch's allocator of pinned memory gives the old one to nobody before the copy from it is done.
            self._buffers[turn] = buffer = self._pinned(max(LEAST_BYTES, 1 << size.bit_length()))
        elif not marker.query():
            marker.synchronize()
        dtype = torch.from_numpy(arrays[0][:0]).dtype
        filled = buffer[:size].view(dtype).view(-1, *arrays[0].shape[1:])
        np.concatenate(arrays, out=filled.numpy())
        there = filled.to(device, non_blocking=True, copy=True)
        marker.record(self._stream(device))
        return there


class Transfers:
    """Copies to and from one device.

    With CUDA they go through pinned memory: inputs in a batch's own stream, as they are small, and results in a second
    one, so that they leave while the device computes on. Elsewhere they are plain copies.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        """The device of the copies."""
        self._stream = _stream(device) if device.type == "cuda" else None
        self._ring = None
        if device.type == "cuda":
            self._ring = PinnedRing(_pinned, partial(torch.cuda.Event, blocking=True), torch.cuda.current_stream)

    def upload(self, arrays: Sequence[NDArray[Any]]) -> list[torch.Tensor]:
        """Copy arrays of one dtype to the device in one transfer; later computations there see them complete."""
        if self._ring is None:
            joined = torch.from_numpy(np.concatenate(arrays)).to(self.device)
        else:
            joined = self._ring.send(arrays, self.device)
        return list(torch.split(joined, [len(array) for array in arrays]))

    def download(self, result: torch.Tensor) -> HostCopy:
        """Begin to copy `result`, as it is once all work queued so far is done."""
        if self._stream is None:
            return HostCopy(result.cpu(), None)
        stream = self._stream
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            host = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
            host.copy_(result, non_blocking=True)
            # A thread that waits for it sleeps: spinning ones keep the tokeniser from the cores.
            done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            done.record(stream)
        result.record_stream(stream)
        return HostCopy(host, done)


def _pinned(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def _stream(device: torch.device) -> torch.cuda.Stream:
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return stream

"""Copies of arrays and tensors between the host and a device, without waiting for the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sie_core.contracts import device_errors


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
        # Pinned memory is scarce and its owner reuses it: what leaves must not hold it.
        return array.copy() if self.done is not None else array


class Transfers:
    """Copies to and from one device.

    With CUDA they go through pinned memory, one stream per direction. So a batch's inputs arrive and the previous
    results leave while the device computes. Elsewhere they are plain copies.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        """The device of the copies."""
        self._streams = (_stream(device), _stream(device)) if device.type == "cuda" else None

    def upload(self, arrays: Sequence[NDArray[Any]]) -> list[torch.Tensor]:
        """Copy arrays of one dtype to the device in one transfer; later computations there see them complete."""
        joined = torch.from_numpy(np.concatenate(arrays))
        if self._streams is None:
            joined = joined.to(self.device)
        else:
            pinned, computing = joined.pin_memory(), torch.cuda.current_stream(self.device)
            with torch.cuda.stream(self._streams[0]):
                joined = pinned.to(self.device, non_blocking=True)
            computing.wait_stream(self._streams[0])
            joined.record_stream(computing)
        return list(torch.split(joined, [len(array) for array in arrays]))

    def download(self, result: torch.Tensor) -> HostCopy:
        """Begin to copy `result`, as it is once all work queued so far is done."""
        if self._streams is None:
            return HostCopy(result.cpu(), None)
        stream = self._streams[1]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            host = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
            host.copy_(result, non_blocking=True)
            # A thread that waits for it sleeps: spinning ones keep the tokeniser from the cores.
            done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            done.record(stream)
        result.record_stream(stream)
        return HostCopy(host, done)


def _stream(device: torch.device) -> torch.cuda.Stream:
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return stream

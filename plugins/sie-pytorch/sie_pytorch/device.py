"""What the device needs of an adapter: its memory errors as the contract's, and results copied back without a wait.

It knows no model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sie_core.contracts import OutOfDeviceMemory

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
"""How a CPU's and MPS's allocators say it; both raise a plain RuntimeError."""


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn PyTorch's ways of running out of memory into `OutOfDeviceMemory`."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfDeviceMemory("The device ran out of memory.") from error
    except RuntimeError as error:
        if any(sign in str(error) for sign in OUT_OF_MEMORY):
            raise OutOfDeviceMemory("The device ran out of memory.") from error
        raise


@dataclass(frozen=True, slots=True)
class HostCopy:
    """A result on its way to the host."""

    tensor: torch.Tensor
    done: torch.cuda.Event | None

    @classmethod
    def start(cls, result: torch.Tensor) -> HostCopy:
        """Begin to copy `result`, from CUDA without waiting for the device."""
        if result.device.type != "cuda":
            return cls(result.cpu(), None)
        host = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
        host.copy_(result, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(result.device))
        return cls(host, done)

    def wait(self) -> NDArray[np.float32]:
        """Return the result once it is complete, contiguous and in float32."""
        if self.done is not None:
            self.done.synchronize()
        array: NDArray[np.float32] = self.tensor.float().contiguous().numpy()
        # Pinned memory is scarce and its owner reuses it: what leaves must not hold it.
        return array.copy() if self.done is not None else array

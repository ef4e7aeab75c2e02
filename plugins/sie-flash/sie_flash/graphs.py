"""CUDA graphs of short forward passes: the launches of a pass are recorded once and replayed as one.

A short pass is bound by its launches: a graph takes the host out of it. A graph has fixed shapes, so a batch is padded
to a bucket of tokens and sequences; the padding is a sequence of its own, which no text attends to.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sie_pytorch.forward import Batch, Transfers

from sie_flash.kernels import Bounds, Kernel
from sie_flash.layout import VarlenLayout

logger = logging.getLogger(__name__)

TOKENS = (16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048)
"""Tokens of a bucket: powers of two while a pass is launch-bound, then steps that waste at most half of the padding."""
SEQUENCES = (2, 4, 8, 16, 32, 64, 128, 256)
"""Sequences of a bucket, the padding included."""
MOST_GRAPHS = 48
"""Graphs of one model; each holds its launches and a result of at most 2,048 tokens."""
_recording: Final = threading.Lock()
"""Held by the one recording of the process: a recording waits for the whole device first, which ends another one."""


class Bucket(NamedTuple):
    """The shape of a graph."""

    tokens: int
    sequences: int

    def bounds(self, cu_seqlens: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
        """Write a batch's bounds as the bucket's, `[sequences + 1]`; the first sequence added holds all padding."""
        filled = np.full(self.sequences + 1, self.tokens, np.int32)
        filled[: len(cu_seqlens)] = cu_seqlens
        return filled


def bucket_of(tokens: int, sequences: int) -> Bucket | None:
    """Choose the smallest bucket for a batch; None if it is too large for any."""
    place = bisect_left(TOKENS, tokens)
    if place == len(TOKENS):
        return None
    needed = sequences + (tokens < TOKENS[place])
    rank = bisect_left(SEQUENCES, needed)
    return None if rank == len(SEQUENCES) else Bucket(TOKENS[place], SEQUENCES[rank])


Run = Callable[[Batch, VarlenLayout], torch.Tensor]
"""A forward pass over a batch and its layout, without preemption."""


class Capture(Protocol):
    """Records the work of a function on a device."""

    def __call__(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """Run `work` once to warm up, then record it.

        Returns:
            What does the recorded work again, and its result, which every replay writes anew.
        """
        ...


@dataclass(slots=True)
class CudaCapture:
    """Records with `torch.cuda.CUDAGraph`; all graphs share one pool of memory, as only one is replayed at a time."""

    device: torch.device
    _pool: Any = None

    def __call__(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """See `Capture`. Other threads may go on to allocate and compute meanwhile."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        stream: torch.cuda.Stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        graph = torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            result = work()
        return graph.replay, result


@dataclass(frozen=True, slots=True)
class Graph:
    """One recorded pass, with the inputs that it reads."""

    inputs: Batch
    """int64 `[tokens]` of each; what lies beyond a batch is of earlier ones. int32 `cu_seqlens` are on the device."""
    replay: Callable[[], None]
    states: torch.Tensor
    """`[tokens, hidden]`."""


@dataclass(slots=True)
class Graphs:
    """The recorded passes of one model; not safe for several threads."""

    kernel: Kernel
    transfers: Transfers
    capture: Capture
    _recorded: dict[Hashable, Graph | None] = field(default_factory=dict)
    """None for what had no memory: it is launched, and not tried again at every batch."""
    _failed: bool = False

    def __call__(self, run: Run, batch: Batch, variant: Hashable) -> torch.Tensor | None:
        """Compute the states of a batch by a graph, which is recorded at the first use of its bucket.

        Args:
            run: The pass; the same in every call. It is not kept: the runner would hold itself.
            batch: Its input, without low-rank factors; all tokens are keys.
            variant: What else the pass depends on, such as the windows of its layers.

        Returns:
            `[total_tokens, hidden]`; None if no graph serves the batch.
        """
        tokens = len(batch.ids)
        bucket = None if self._failed else bucket_of(tokens, len(batch.cu_seqlens) - 1)
        if bucket is None:
            return None
        key = (bucket, batch.types is None, variant)
        if key not in self._recorded:
            if len(self._recorded) >= MOST_GRAPHS:
                return None
            self._recorded[key] = self._record(run, bucket, batch.types is not None)
        graph = self._recorded[key]
        if graph is None:
            return None
        (bounds,) = self.transfers.upload([bucket.bounds(batch.cu_seqlens.numpy())])
        inputs = graph.inputs
        inputs.cu_seqlens.copy_(bounds)
        inputs.ids[:tokens].copy_(batch.ids)
        inputs.positions[:tokens].copy_(batch.positions)
        if batch.types is not None and inputs.types is not None:
            inputs.types[:tokens].copy_(batch.types)
        graph.replay()
        # The next replay writes the result anew, while this one may still be on its way to the host.
        return graph.states[:tokens].clone()

    def _record(self, run: Run, bucket: Bucket, has_types: bool) -> Graph | None:
        device = self.transfers.device
        ids, positions, types = (torch.zeros(bucket.tokens, dtype=torch.int64, device=device) for _ in range(3))
        (bounds,) = self.transfers.upload([bucket.bounds(np.zeros(1, np.int32))])
        bounds = bounds.clone()
        inputs = Batch(ids, positions, bounds, types=types if has_types else None)
        layout = VarlenLayout(self.kernel, Bounds(bounds, bucket.tokens))
        try:
            with _recording:
                replay, states = self.capture(lambda: run(inputs, layout))
        except torch.OutOfMemoryError:
            return None  # a graph is not worth the eviction of a model, and the pass itself may have room
        except RuntimeError as error:
            self._failed = True
            logger.warning("A forward pass cannot be recorded as a CUDA graph (%s); all are launched one by one", error)
            return None
        return Graph(inputs, replay, states)

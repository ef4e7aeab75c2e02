"""CUDA graphs of short forward passes: the launches of a pass are recorded once and replayed as one.

A short pass is bound by its launches: a graph takes the host out of it. A graph has fixed shapes, so a batch is padded
to a bucket of tokens and sequences; the padding is a sequence of its own, which no text attends to.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sie_pytorch.forward import RECORDING, Batch, Transfers, register_recordings

from sie_core.contracts import DeviceLost, device_fault
from sie_flash.kernels import Bounds, Kernel
from sie_flash.layout import VarlenLayout

logger = logging.getLogger(__name__)

TOKENS = (16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048)
"""Tokens of a bucket: powers of two while a pass is launch-bound, then steps that waste at most half of the padding."""
SEQUENCES = (2, 4, 8, 16, 32, 64, 128, 256)
"""Sequences of a bucket, the padding included."""
MOST_GRAPHS = 48
"""Graphs of one model; each holds its launches and a result of at most 2,048 tokens."""
MOST_BYTES = 1 << 29
"""Device memory of one model's graphs from which on no further one is recorded."""


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


class Recorded(NamedTuple):
    """The recorded work of a function."""

    replay: Callable[[], None]
    """Does the work again."""
    result: torch.Tensor
    """Every replay writes it anew."""
    held_bytes: int
    """Bytes of the device that this and earlier recordings of the same `Capture` hold in addition to tensors."""


class Capture(Protocol):
    """Records the work of a function on a device."""

    def __call__(self, work: Callable[[], torch.Tensor]) -> Recorded:
        """Run `work` once to warm up, then record it.

        Raises:
            RuntimeError: It cannot be recorded, or there is no memory for it; nothing further is recorded with this.
        """
        ...


@dataclass(slots=True)
class CudaCapture:
    """Records with `torch.cuda.CUDAGraph`; all graphs share one pool of memory, as only one is replayed at a time."""

    device: torch.device
    _pool: Any = None

    def __call__(self, work: Callable[[], torch.Tensor]) -> Recorded:
        """See `Capture`. Other threads may go on to allocate and compute meanwhile."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        stream: torch.cuda.Stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        graph, own = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        stream.wait_stream(own)
        with torch.cuda.stream(stream):
            work()
        own.wait_stream(stream)
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                result = work()
        finally:
            torch.cuda.set_stream(own)  # a recording that the driver ended leaves its own as the thread's
        blocks: list[dict[str, Any]] = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        own_blocks = [each for each in blocks if tuple(each["segment_pool_id"]) == tuple(self._pool)]
        return Recorded(graph.replay, result, sum(each["total_size"] - each["allocated_size"] for each in own_blocks))


@dataclass(frozen=True, slots=True)
class Graph:
    """One recorded pass, with the inputs that it reads."""

    inputs: Batch
    """int64 `[tokens]` of each; what lies beyond a batch is of earlier ones. int32 `cu_seqlens` are on the device."""
    replay: Callable[[], None]
    states: torch.Tensor
    """`[tokens, hidden]`."""

    def __call__(self, batch: Batch, bounds: torch.Tensor) -> torch.Tensor:
        """Replay it for a batch whose bounds are on the device, int32 `[sequences + 1]`; return the batch's states."""
        tokens, inputs = len(batch.ids), self.inputs
        # The first sequence added holds all padding, as `Bucket.bounds` says.
        inputs.cu_seqlens[: len(bounds)].copy_(bounds)
        inputs.cu_seqlens[len(bounds) :].fill_(len(inputs.ids))
        inputs.ids[:tokens].copy_(batch.ids)
        inputs.positions[:tokens].copy_(batch.positions)
        if batch.types is not None and inputs.types is not None:
            inputs.types[:tokens].copy_(batch.types)
        self.replay()
        # The next replay writes the result anew, while this one may still be on its way to the host.
        return self.states[:tokens].clone()


@dataclass(slots=True, eq=False, weakref_slot=True)
class Graphs:
    """The recorded passes of one model; `give_back` aside, not safe for several threads.

    Args:
        kernel: Attends.
        transfers: Copies to the device.
        make: Makes a `Capture` for the first recording, and for the first after some were given back or one failed.
    """

    kernel: Kernel
    transfers: Transfers
    make: Callable[[], Capture]
    held_bytes: int = 0
    """See `sie_pytorch.forward.recorded.Recordings`."""
    _capture: Capture | None = None
    _recorded: dict[Hashable, Graph | None] = field(default_factory=dict)
    """None for what could not be recorded: it is launched, and not tried again at every batch."""
    _warned: bool = False

    def __post_init__(self) -> None:
        register_recordings(self)

    @property
    def index(self) -> int:
        """The number of the device."""
        return self.transfers.device.index or 0

    def give_back(self) -> None:
        """Drop all graphs; a pass that is at work keeps its own until its end."""
        self._recorded = {key: None for key, graph in self._recorded.items() if graph is None}
        self._capture, self.held_bytes = None, 0

    def __call__(self, run: Run, batch: Batch, variant: Hashable) -> torch.Tensor | None:
        """Compute the states of a batch by a graph, which is recorded at the first use of its bucket.

        Args:
            run: The pass; the same in every call. It is not kept: the runner would hold itself.
            batch: Its input, without low-rank factors; all tokens are keys.
            variant: What else the pass depends on, such as the windows of its layers.

        Returns:
            `[total_tokens, hidden]`; None if no graph serves the batch.
        """
        bucket = bucket_of(len(batch.ids), len(batch.cu_seqlens) - 1)
        if bucket is None:
            return None
        key, recorded = (bucket, batch.types is None, variant), self._recorded
        graph = recorded[key] if key in recorded else self._record(key, run, bucket, batch.types is not None)
        if graph is None:
            return None
        bounds = batch.bounds
        if bounds is None:
            (bounds,) = self.transfers.upload([batch.cu_seqlens.numpy().astype(np.int32)])
        return graph(batch, bounds)

    def _record(self, key: Hashable, run: Run, bucket: Bucket, has_types: bool) -> Graph | None:
        with RECORDING:  # a recording waits for the whole device first, which ends another one
            made = [graph for graph in self._recorded.values() if graph is not None]
            held = self.held_bytes + sum(graph.states.nbytes for graph in made)
            if len(self._recorded) >= MOST_GRAPHS or held >= MOST_BYTES:
                return None
            self._recorded[key] = graph = self._recording(run, bucket, has_types)
            return graph

    def _recording(self, run: Run, bucket: Bucket, has_types: bool) -> Graph | None:
        device = self.transfers.device
        ids, positions, types = (torch.zeros(bucket.tokens, dtype=torch.int64, device=device) for _ in range(3))
        (bounds,) = self.transfers.upload([bucket.bounds(np.zeros(1, np.int32))])
        bounds = bounds.clone()
        inputs = Batch(ids, positions, bounds, types=types if has_types else None)
        layout = VarlenLayout(self.kernel, Bounds(bounds, bucket.tokens))
        self._capture = self._capture or self.make()
        try:
            replay, states, self.held_bytes = self._capture(lambda: run(inputs, layout))
        except RuntimeError as error:  # without memory too: a graph is not worth the eviction of a model
            if isinstance(device_fault(error), DeviceLost):
                raise
            self._capture = None
            if not self._warned:
                self._warned = True
                said = str(error)  # a kept record of the log would hold the model with the error
                logger.warning("A forward pass cannot be recorded as a CUDA graph (%s) and is launched", said)
            return None
        return Graph(inputs, replay, states)

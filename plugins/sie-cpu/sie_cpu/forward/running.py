"""The forward pass of a model that is served: its kernels in the first precision that holds, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sie_text.architectures import Feature
from sie_text.heads import Head
from sie_text.recipe import NotUnderstoodError
from sie_text.sequences import PackedBatch, TokenSequence
from threadpoolctl import threadpool_limits

from sie_core.contracts import InvalidInput, LoadContext, ModelCard, OutOfDeviceMemory, Task
from sie_cpu.checkpoint.model import Described
from sie_cpu.forward.batch import Floats
from sie_cpu.forward.distances import RelativePositions, biases_of
from sie_cpu.forward.embeddings import TokenEntry
from sie_cpu.forward.encoder import KernelEncoder, PackedLowRank
from sie_cpu.forward.low_rank import LowRank
from sie_cpu.forward.proof import WINDOW as PROOF_WINDOW
from sie_cpu.forward.proof import Probe, ProofFailed, make_probe, require_equal, require_logits
from sie_cpu.forward.reference import reference_states
from sie_cpu.kernels import Kernels, kernels_for
from sie_cpu.packing import Factors, LayerParts, UnfitError

RUNNER = "cpu-kernels"
AUTO = frozenset({"auto", "priority", RUNNER})
"""Values of `SIE_RUNNER` under which the kernels may serve."""
FLOAT32, BFLOAT16 = "float32", "bfloat16"


MOST_TOKENS = 128
"""Tokens from which on no further probe of a judge is taken: the plain pass over them is part of the load."""
LEAST_PROBES = 4
"""Probes used whatever their length: a single one's logit may hardly move by chance."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges half precision by the logits of a head, the first of its arrays."""

    head: Head
    sequences: Iterable[TokenSequence]
    """Of texts; only as many as needed are read."""
    task: Task
    """What is asked of the head."""
    gives_types: bool = False
    """Whether token types go with the tokens."""

    def batch(self) -> PackedBatch | None:
        """Make the probes; None if the profile's options allow none: the first run says which."""
        taken: list[TokenSequence] = []
        with suppress(InvalidInput):
            for sequence in self.sequences:
                taken.append(sequence)
                if len(taken) >= LEAST_PROBES and sum(len(each.ids) for each in taken) >= MOST_TOKENS:
                    break
        return PackedBatch(taken) if taken else None

    def logits(self, states: Floats, batch: PackedBatch) -> NDArray[Any]:
        """Compute the logits of a batch from its states."""
        head = self.head
        found: NDArray[Any] = head.compute(states, head.lay_out(batch, lambda arrays: arrays), head.choose(self.task))[
            0
        ]
        return found


class CpuRunner:
    """A model's forward pass by the kernels."""

    def __init__(self, model: Described, kernels: Kernels, threads: int) -> None:
        """Pack the weights, layer by layer.

        Raises:
            NotUnderstoodError: The files hold other tensors than the model type has.
            ModelLoadError: `CORRUPT`: weights are damaged; names the tensor and its file.
        """
        self._model, settings = model, model.settings
        self._entry = TokenEntry(model)
        self._relative = RelativePositions(model) if settings.row.disentangled else None
        self._biases = biases_of(model)
        try:
            self._encoder = KernelEncoder(
                kernels,
                settings,
                settings.hidden,
                self._layers(),
                model.before(),
                angles=settings.angles_of(),
                positions=self._relative,
                biases=self._biases,
                threads=threads,
            )
        except UnfitError as error:
            raise NotUnderstoodError(str(error)) from error
        model.require_all_used()
        self._shapes = {**self._entry.linear_shapes, **model.linear_shapes()}
        self.precision = kernels.precision
        self.hidden_size = settings.hidden
        self.limit = self._entry.limit
        """Tokens of a sequence that the positions allow; None for any number."""
        self.memory_bytes = self._encoder.memory_bytes + self._entry.memory_bytes
        self.notes = {"runner": RUNNER, "kernels": kernels.name}

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """The linear layers that LoRA factors may be for: out and in, by dotted name below the model."""
        relative = {} if self._relative is None else self._relative.linear_shapes
        return {**self._shapes, **relative}

    def pack_low_rank(self, adapter: LowRank) -> int:
        """Pack factors ahead of the first batch with them; return the bytes that they take."""
        return self._packed(adapter).nbytes

    def states(self, batch: PackedBatch, *, gives_types: bool = False, adapter: LowRank | None = None) -> Floats:
        """Compute the last hidden states of a batch: float32 `[tokens, hidden]`.

        Args:
            batch: The sequences.
            gives_types: Whether token types go with the tokens.
            adapter: A LoRA adapter.

        Raises:
            OutOfDeviceMemory: No memory is left for it.
        """
        types = batch.types if gives_types else None
        probe = Probe(batch.ids, batch.positions, types, batch.cu_seqlens, batch.key_lengths)
        try:
            return self._run(probe, self._model.settings.windows, adapter)
        except MemoryError as error:
            raise OutOfDeviceMemory("The machine has no room for the batch.") from error

    def prove(self, *, expands_queries: bool, judge: Judge | None) -> None:
        """Compare the kernels with the plain forward pass.

        Raises:
            ProofFailed: They differ.
        """
        settings, table = self._model.settings, self._entry.types
        probe = make_probe(settings, self._entry.words.shape[0], 0 if table is None else table.shape[0], self.limit)
        windows = tuple(window and min(window, PROOF_WINDOW) for window in settings.windows)
        for each in [probe, probe.with_expansion()] if expands_queries else [probe]:
            found = self._run(each, windows)
            require_equal(found, self._plain(each, windows), each, self.precision)
        batch = None if judge is None or self.precision == FLOAT32 else judge.batch()
        if judge is not None and batch is not None:
            types = batch.types if judge.gives_types else None
            given = Probe(batch.ids, batch.positions, types, batch.cu_seqlens, batch.key_lengths)
            expected = judge.logits(self._plain(given, settings.windows).astype(np.float32), batch)
            require_logits(judge.logits(self._run(given, settings.windows), batch), expected, self.precision)

    def _layers(self) -> Iterator[LayerParts]:
        """Yield the weights of each layer; its pages go back once it is packed."""
        for number in range(self._model.settings.count):
            parts = self._model.layer(number)
            yield parts if self._relative is None else replace(parts, positions=self._relative.projected(number))
            self._model.release(number)

    def _run(self, batch: Probe, windows: tuple[int | None, ...], adapter: LowRank | None = None) -> Floats:
        factors = None if adapter is None else adapter.factors
        entered = self._entry(batch.ids, batch.positions, batch.types, factors)
        seen = None if batch.keys is None else np.ascontiguousarray(batch.keys, dtype=np.int64)
        offsets = np.ascontiguousarray(batch.offsets, dtype=np.int64)
        packed = None if adapter is None else self._packed(adapter)
        return self._encoder.run(entered, offsets, seen, windows, packed)

    def _packed(self, adapter: LowRank) -> PackedLowRank:
        return self._encoder.packed(adapter, self.linear_shapes, self._tables)

    def _tables(self, number: int, factors: Mapping[str, Factors]) -> tuple[Floats, Floats] | None:
        """Make the keys and queries of relative positions of a layer if `factors` change them."""
        if self._relative is None or factors.keys().isdisjoint(self._relative.names):
            return None
        return self._relative.projected(number, factors)

    def _plain(self, probe: Probe, windows: tuple[int | None, ...]) -> NDArray[np.float64]:
        return reference_states(
            self._model,
            self._entry,
            self._relative,
            self._biases,
            probe.ids,
            probe.positions,
            probe.types,
            probe.offsets,
            windows,
            probe.keys,
        )


def build_runner(
    context: LoadContext,
    card: ModelCard,
    features: frozenset[Feature],
    *,
    expands_queries: bool = False,
    judge: Callable[[CpuRunner], Judge] | None = None,
) -> CpuRunner:
    """Build the forward pass of a checkpoint, in the precision asked for if its numbers hold, else in float32.

    Args:
        context: The model to load.
        card: The checkpoint's.
        features: What the kernels compute.
        expands_queries: Whether sequences may have tokens that no token attends to; proven then too.
        judge: Makes the judge of half precision; None if only the states count.

    Raises:
        NotUnderstoodError: The kernels do not compute it.
        ModelLoadError: `CORRUPT`: its files are damaged.
        OutOfDeviceMemory: The machine has no room for the weights.
    """
    if context.runner not in AUTO or context.attention_backend != "auto":
        asked = context.runner if context.runner not in AUTO else context.attention_backend
        raise NotUnderstoodError(f"SIE_RUNNER or SIE_ATTENTION_BACKEND asks for {asked}, a runner of PyTorch's")
    model = Described.read(card, features)
    if expands_queries and model.settings.row.disentangled:
        raise NotUnderstoodError("it does not run tokens of DeBERTa that nothing attends to")
    reason: str | None = None
    for precision in (BFLOAT16, FLOAT32) if context.precision != FLOAT32 else (FLOAT32,):
        try:
            runner = CpuRunner(model, kernels_for(precision), context.threads)
            with threadpool_limits(1, user_api="blas"):  # whose threads spin longer than such small products take
                runner.prove(expands_queries=expands_queries, judge=None if judge is None else judge(runner))
        except MemoryError as error:
            raise OutOfDeviceMemory("The machine has no room for the weights.") from error
        except (OSError, ProofFailed) as error:
            if precision == FLOAT32:
                raise NotUnderstoodError(str(error)) from error
            reason = str(error)
            continue
        told = reason
        if precision == BFLOAT16 and context.precision != BFLOAT16:
            told = "half precision on a CPU is bfloat16"
        runner.notes |= {"precision": told} if told else {}
        return runner
    raise AssertionError("float32 serves or is refused")

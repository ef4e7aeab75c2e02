"""The forward pass of a model that is served: its kernels in the first precision that holds, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sie_text.architectures import Feature
from sie_text.recipe import NotUnderstoodError
from sie_text.sequences import PackedBatch, TokenSequence

from sie_core.contracts import LoadContext, ModelCard, OutOfDeviceMemory
from sie_cpu.checkpoint.model import Described
from sie_cpu.forward.batch import Floats, Ids
from sie_cpu.forward.distances import RelativePositions
from sie_cpu.forward.embeddings import TokenEntry
from sie_cpu.forward.encoder import KernelEncoder
from sie_cpu.forward.proof import WINDOW as PROOF_WINDOW
from sie_cpu.forward.proof import Probe, ProofFailed, make_probe, require_equal, require_logits
from sie_cpu.forward.reference import reference_states
from sie_cpu.kernels import Kernels, kernels_for
from sie_cpu.packing import LayerParts, UnfitError

RUNNER = "cpu-kernels"
AUTO = frozenset({"auto", "priority", RUNNER})
"""Values of `SIE_RUNNER` under which the kernels may serve."""
FLOAT32, BFLOAT16 = "float32", "bfloat16"


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges half precision by the logits of a head."""

    sequences: Iterable[TokenSequence]
    """A few texts."""
    logits: Callable[[NDArray[np.floating], PackedBatch], NDArray[np.floating]]
    """Computes the logits of a batch from its states."""
    gives_types: bool = False
    """Whether token types go with the tokens."""


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
        try:
            self._encoder = KernelEncoder(
                kernels,
                settings,
                settings.hidden,
                self._layers(),
                model.before(),
                angles=settings.angles_of(),
                positions=self._relative,
                threads=threads,
            )
        except UnfitError as error:
            raise NotUnderstoodError(str(error)) from error
        model.require_all_used()
        self.precision = kernels.precision
        self.hidden_size = settings.hidden
        self.limit = self._entry.limit
        """Tokens of a sequence that the positions allow; None for any number."""
        self.memory_bytes = self._encoder.memory_bytes + self._entry.memory_bytes
        self.notes = {"runner": RUNNER, "kernels": kernels.name}

    def states(self, batch: PackedBatch, *, gives_types: bool = False) -> Floats:
        """Compute the last hidden states of a batch: float32 `[tokens, hidden]`.

        Raises:
            OutOfDeviceMemory: No memory is left for it.
        """
        types = batch.types if gives_types else None
        keys = batch.key_lengths
        try:
            return self._run(batch.ids, batch.positions, types, batch.cu_seqlens, keys, self._model.settings.windows)
        except MemoryError as error:
            raise OutOfDeviceMemory("The machine has no room for the batch.") from error

    def prove(self, *, expands_queries: bool, judge: Judge | None) -> None:
        """Compare the kernels with the plain forward pass.

        Raises:
            ProofFailed: They differ.
        """
        settings, types = self._model.settings, self._entry.types
        probe = make_probe(settings, self._entry.words.shape[0], 0 if types is None else types.shape[0], self.limit)
        windows = tuple(window and min(window, PROOF_WINDOW) for window in settings.windows)
        for each in [probe, probe.with_expansion()] if expands_queries else [probe]:
            found = self._run(each.ids, each.positions, each.types, each.offsets, each.keys, windows)
            require_equal(found, self._plain(each, windows), each, self.precision)
        if judge is not None and self.precision != FLOAT32:
            batch = PackedBatch(list(judge.sequences))
            types_of = batch.types if judge.gives_types else None
            given = Probe(batch.ids, batch.positions, types_of, batch.cu_seqlens, batch.key_lengths)
            expected = judge.logits(self._plain(given, settings.windows).astype(np.float32), batch)
            require_logits(
                judge.logits(self.states(batch, gives_types=judge.gives_types), batch), expected, self.precision
            )

    def _layers(self) -> Iterator[LayerParts]:
        """Yield the weights of each layer; its pages go back once it is packed."""
        for number in range(self._model.settings.count):
            parts = self._model.layer(number)
            yield parts if self._relative is None else replace(parts, positions=self._relative.projected(number))
            self._model.release(number)

    def _run(
        self, ids: Ids, positions: Ids, types: Ids | None, offsets: Ids, keys: Ids | None, windows: Iterable[int | None]
    ) -> Floats:
        entered = self._entry(ids, positions, types)
        seen = None if keys is None else np.ascontiguousarray(keys, dtype=np.int64)
        return self._encoder.run(entered, np.ascontiguousarray(offsets, dtype=np.int64), seen, tuple(windows))

    def _plain(self, probe: Probe, windows: tuple[int | None, ...]) -> NDArray[np.float64]:
        return reference_states(
            self._model,
            self._entry,
            self._relative,
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
    reason: str | None = None
    for precision in (BFLOAT16, FLOAT32) if context.precision != FLOAT32 else (FLOAT32,):
        try:
            runner = CpuRunner(model, kernels_for(precision), context.threads)
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

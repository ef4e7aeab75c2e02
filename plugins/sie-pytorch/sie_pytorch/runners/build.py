"""Chooses what runs a model: registered runners by priority, each proved at load; the padded one where none passes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from sie_core.contracts import (
    Device,
    ModelCard,
    ModelLoadError,
    OutOfDeviceMemory,
    RunnerSpec,
    device_errors,
    device_fault,
)
from sie_pytorch.runner_specs import INTERFACE
from sie_pytorch.runners.checkpoint import SPARSE_NOTE, load_model
from sie_pytorch.runners.halves import Widened
from sie_pytorch.runners.mapping import MappedFiles
from sie_pytorch.runners.padded import PaddedRunner
from sie_pytorch.runners.positions import position_limit
from sie_pytorch.runners.precision import LEAST_COSINE, precisions
from sie_pytorch.runners.proof import (
    Probe,
    Proof,
    fill_up,
    make_probe,
    narrow_windows,
    prove,
    states_alone,
    token_types,
)
from sie_pytorch.runners.protocol import (
    LowRank,
    LowRankPacker,
    Runner,
    RunnerContext,
    RunnerInfo,
    RunnerUnfitError,
)
from sie_pytorch.runners.two_parts import TwoParts, two_sets

logger = logging.getLogger(__name__)

ATTENTION_BACKENDS = ("auto", "sdpa", "eager")
"""Those that need no runner which names them."""


class BuiltRunner:
    """The runner that serves a model, with what is known of it. Moves inputs to its device; computes no gradients."""

    def __init__(self, runner: Runner, info: RunnerInfo, device: torch.device) -> None:
        self.info = info
        self.linear_shapes = runner.linear_shapes
        self._runner = runner
        self._device = device

    @torch.inference_mode()
    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        low_rank: LowRank | None = None,
        key_lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`."""
        ids = ids.to(self._device, non_blocking=True)
        positions = positions.to(self._device, non_blocking=True)
        if segment_ids is not None:
            segment_ids = segment_ids.to(self._device, non_blocking=True)
        if key_lengths is None:
            return self._runner.forward(ids, positions, segment_ids, cu_seqlens, low_rank)
        return self._runner.forward(ids, positions, segment_ids, cu_seqlens, low_rank, key_lengths)

    @torch.inference_mode()
    def pack_low_rank(self, low_rank: LowRank) -> int:
        """Have the runner pack factors where it does; see `LowRankPacker.pack_low_rank`."""
        return self._runner.pack_low_rank(low_rank) if isinstance(self._runner, LowRankPacker) else 0


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A runner that may be tried: its name, and what makes it."""

    name: str
    make: Callable[[RunnerContext], Runner]
    backend: str


@dataclass(slots=True)
class _Choice:
    """The runner that proved itself, and why those before it did not."""

    name: str
    runner: Runner
    proof: Proof
    most: int | None
    """Tokens of a sequence the positions allow."""
    refused: list[str] = field(default_factory=list)

    @property
    def reason(self) -> str:
        proof = f"equals each probe sequence alone within {self.proof.error:.0e}"
        return "; ".join([*self.refused, proof])


def build_runner(
    model_folder: Path,
    card: ModelCard,
    device: Device,
    precision: str,
    attention_backend: str = "auto",
    runner_specs: Sequence[RunnerSpec] = (),
    threads: int = 1,
    *,
    fills_up: bool = False,
) -> BuiltRunner:
    """Load a checkpoint's base model and pick what runs it.

    The runners of our interface that serve the model type and the device are tried, highest priority first; one serves
    if its states over packed probe sequences equal each sequence alone through the model's own forward pass. The padded
    runner comes last. `info.notes` and the log say which serves and why.

    Args:
        model_folder: Where `config.json` and `*.safetensors` of the transformer lie.
        card: The facts of the whole checkpoint.
        device: Where to run.
        precision: `float32` is honoured; `bfloat16` and `float16` where the device is fast in them and the numbers
            hold.
        attention_backend: `auto`, `sdpa`, `eager`, or one that a registered runner names.
        runner_specs: Every registered runner; those of other interfaces are passed over.
        threads: CPU threads the forward pass may use, for runners that start their own.
        fills_up: Whether sequences may have tokens that nothing attends to (`key_lengths`): proven then too.

    Raises:
        ModelLoadError: The checkpoint cannot be served: `CONFIG`, `CORRUPT`, `DEPENDENCY`.
        OutOfDeviceMemory: The device has no room for it.
        DeviceLost: Only a new process gets the device back.
    """
    ours = [spec for spec in runner_specs if spec.interface == INTERFACE]
    _require_backend(attention_backend, ours)
    place = torch.device(str(device))
    lost = ""
    for plan in precisions(precision, place):
        try:
            with device_errors(), torch.inference_mode():
                model = load_model(model_folder, plan.weights, place)
                mapped = MappedFiles.of(model_folder, model.parameters())
                context = RunnerContext(
                    model, model_folder, card, place, plan.compute, attention_backend, threads, mapped
                )
                fit = [spec for spec in ours if spec.serves(model.config.model_type, device.kind, attention_backend)]
                return _built(context, _choose(context, fit, fills_up), plan.note and plan.note + lost)
        except _PrecisionLost as reason:
            lost = f": {reason}"
        except OutOfDeviceMemory as error:
            raise OutOfDeviceMemory(f"{device} has no room for the weights") from error
    raise ModelLoadError("CONFIG", f"No precision serves this model on {device}{lost}.")


def _require_backend(wanted: str, specs: Sequence[RunnerSpec]) -> None:
    named = {backend for spec in specs for backend in spec.attention_backends}
    if wanted not in named.union(ATTENTION_BACKENDS):
        raise ModelLoadError(
            "DEPENDENCY",
            f"The attention backend {wanted!r} is none of sie-pytorch's ({', '.join(ATTENTION_BACKENDS)}) and no "
            "installed runner has it. Install one that does, or set SIE_ATTENTION_BACKEND to one of them.",
        )


class _PrecisionLost(Exception):
    """The states do not survive the precision."""


def _choose(context: RunnerContext, specs: Sequence[RunnerSpec], fills_up: bool) -> _Choice:
    """Try every candidate and keep the first that proves itself.

    Raises:
        ModelLoadError: None does.
        _PrecisionLost: In half precision the numbers do not hold.
    """
    model = context.model
    most = position_limit(model)
    probe = make_probe(model, most, context.device)
    refused: list[str] = []
    with narrow_windows(model):
        trials = [
            (each, _reference(model, each, context.mapped))
            for each in ([probe, fill_up(probe)] if fills_up else [probe])
        ]
        expected = trials[0][1]
        narrowed = context.dtype is not expected.dtype
        if context.dtype is torch.float16 and not bool(expected.isfinite().all()):
            raise _PrecisionLost("its states overflow in float16")
        for candidate in _candidates(context, specs):
            try:
                runner, proof = _try(candidate, context, trials)
            except RunnerUnfitError as reason:
                refused.append(f"not {candidate.name}: {reason}")
            except Exception as fault:  # a runner may be anyone's: its fault costs only itself
                if isinstance(fault, ModelLoadError) or device_fault(fault) is not None:
                    raise
                logger.warning("The %s runner failed its proof", candidate.name, exc_info=True)
                refused.append(f"not {candidate.name}: it failed with {type(fault).__name__}")
            else:
                if narrowed and not proof.cosine >= LEAST_COSINE:
                    raise _PrecisionLost(f"in {context.dtype} its cosine to float32 falls to {proof.cosine:.5f}")
                return _Choice(candidate.name, runner, proof, most, refused)
    reasons = "; ".join(refused)
    if narrowed:
        raise _PrecisionLost(f"no runner keeps its states in {context.dtype}: {reasons}")
    raise ModelLoadError("CONFIG", f"No runner serves this {model.config.model_type} model: {reasons}.")


def _reference(model: Any, probe: Probe, mapped: MappedFiles) -> torch.Tensor:
    """Have the model itself answer the probe.

    Raises:
        ModelLoadError: `CONFIG`: it does not turn token ids into one state a token.
    """
    try:
        with Widened(model, mapped) if probe.ids.device.type == "cpu" else nullcontext():
            expected = states_alone(model, probe)
    except Exception as fault:
        taken = "token ids alone" if probe.key_lengths is None else "an attention mask"
        raise ModelLoadError(
            "CONFIG", f"{type(model).__name__} does not run on {taken}; it is no text encoder to sie-pytorch."
        ) from fault
    if expected.shape != (len(probe.ids), model.config.hidden_size):
        raise ModelLoadError("CONFIG", f"{type(model).__name__} does not return one state a token.")
    return expected


def _candidates(context: RunnerContext, specs: Sequence[RunnerSpec]) -> Iterator[_Candidate]:
    """List what may run the model, best first: registered runners, then padded ones, ever more careful."""
    backend = context.attention_backend
    for spec in sorted(specs, key=lambda spec: (-spec.priority, spec.name)):
        yield _Candidate(spec.name, partial(_load_target, spec), backend)
    if backend != "eager" and context.model._supports_sdpa:
        yield _Candidate("padded", PaddedRunner, "sdpa")
        yield _Candidate("padded (eager)", PaddedRunner, "eager")
    else:
        yield _Candidate("padded", PaddedRunner, "eager")
    yield _Candidate("padded (equal lengths)", partial(PaddedRunner, exact=True), "eager")


def _load_target(spec: RunnerSpec, context: RunnerContext) -> Runner:
    """Import the class a spec names and make the runner."""
    module, _, name = spec.target.partition(":")
    runner: Runner = getattr(import_module(module), name)(context)
    return runner


def _try(
    candidate: _Candidate, context: RunnerContext, trials: Sequence[tuple[Probe, torch.Tensor]]
) -> tuple[Runner, Proof]:
    """Make a runner and have it prove itself on every probe; the proof is the worst."""
    runner = candidate.make(replace(context, attention_backend=candidate.backend))
    rope = two_sets(context.model)
    if rope is not None:
        runner = TwoParts(runner, rope)
    proofs = [prove(runner, probe, expected, context.dtype) for probe, expected in trials]
    return runner, Proof(max(proof.error for proof in proofs), min(proof.cosine for proof in proofs))


def _built(context: RunnerContext, choice: _Choice, precision_note: str | None) -> BuiltRunner:
    """Put the runner that was chosen together with its facts, and log them."""
    model = context.model
    notes = {"runner": choice.name, "runner_reason": choice.reason}
    if precision_note:
        notes["precision"] = precision_note
    if context.card.config.get("attention_type") == "block_sparse":
        notes["attention"] = SPARSE_NOTE
    info = RunnerInfo(
        name=choice.name,
        reason=choice.reason,
        precision=str(context.dtype).removeprefix("torch."),
        model_type=model.config.model_type,
        hidden_size=model.config.hidden_size,
        attention_layers=model.config.num_hidden_layers,
        max_sequence_length=choice.most,
        memory_bytes=choice.runner.memory_bytes,
        embeds_types=token_types(model) > 0 and not hasattr(model.config, "type_vocab_size"),
        notes=notes,
    )
    logger.info("%s runs on the %s runner in %s: %s", info.model_type, info.name, info.precision, info.reason)
    if precision_note:
        logger.info("%s: %s", info.model_type, precision_note)
    return BuiltRunner(choice.runner, info, context.device)

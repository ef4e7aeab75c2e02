"""Proof at load: a runner's states over a packed batch equal each sequence alone through the model's own pass."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from sie_core.contracts import ModelLoadError, device_fault
from sie_pytorch.forward.checkpoint.half_precision import widened
from sie_pytorch.forward.checkpoint.mapping import MappedFiles
from sie_pytorch.forward.checkpoint.positions import position_limit
from sie_pytorch.forward.checkpoint.precision import (
    LEAST_COSINE,
    TOLERANCE,
    Overflow,
    PrecisionLost,
    least_cosine,
    name_of,
    relative_error,
)
from sie_pytorch.forward.checkpoint.reading import forward_arguments
from sie_pytorch.forward.choice.probes import batch_of, fill_up, make_probe, narrow_windows, special_tokens
from sie_pytorch.forward.judging.logits import Judge
from sie_pytorch.forward.layout import seen_tokens
from sie_pytorch.forward.protocol import Batch, Runner, RunnerContext, RunnerUnfitError


@dataclass(frozen=True, slots=True)
class Proof:
    """The error of a runner's states on the probes, compared with the model itself on each sequence alone."""

    error: float
    """The largest relative error of a token."""
    cosine: float
    """The least cosine between the mean states of a sequence."""


@dataclass(frozen=True, slots=True)
class ReferenceStates:
    """The probes of a model and its own states on them, computed once for all runners."""

    pairs: tuple[tuple[Batch, torch.Tensor], ...]
    limit: int | None
    """Tokens of a sequence the positions allow."""
    judged: tuple[Judge, Batch, torch.Tensor] | None = None
    """A judge and its sequences, with the model's own states for them in float32; None without a judge."""

    @classmethod
    def of(cls, context: RunnerContext, *, expands_queries: bool, judge: Judge | None = None) -> ReferenceStates:
        """Have the model answer the probes.

        Args:
            context: Holds the model.
            expands_queries: Whether runners must prove `key_lengths` too.
            judge: Judges outputs of half precision in addition to the states.

        Raises:
            ModelLoadError: `CONFIG`: it does not turn token ids into one state a token.
            Overflow: Its states overflow in float16.
            PrecisionLost: The judge has no probes.
        """
        model = context.model
        limit = position_limit(model)
        probe = make_probe(model, limit, context.device)
        with narrow_windows(model):
            probes = [probe, fill_up(probe)] if expands_queries else [probe]
            pairs = tuple((each, _reference(model, each, context.mapped)) for each in probes)
        judged = None
        if judge is not None and context.dtype is not torch.float32:
            given = judge.probes(limit)
            if given is None:
                raise PrecisionLost("there is no text to judge half precision by")
            probe = batch_of(*given, context.device)
            with widened(model, context.mapped):
                judged = judge, probe, states_together(model, probe)
        references = cls(pairs, limit, judged)
        if context.dtype is torch.float16 and not bool(pairs[0][1].isfinite().all()):
            raise Overflow("its states overflow in float16")
        return references

    @property
    def dtype(self) -> torch.dtype:
        """Precision in which the model itself computed: float32 on a CPU."""
        return self.pairs[0][1].dtype

    def prove(self, runner: Runner, context: RunnerContext) -> Proof:
        """Compare `runner` with the model on every probe, its windows narrowed; the proof is the worst.

        Raises:
            RunnerUnfitError: The error is beyond the precision's tolerance.
            PrecisionLost: In half precision the states turn too far from those in float32, or the judge refuses.
        """
        with narrow_windows(context.model):
            proofs = [prove(runner, probe, expected, context.dtype) for probe, expected in self.pairs]
        proof = Proof(max(each.error for each in proofs), min(each.cosine for each in proofs))
        if context.dtype is not self.dtype and not proof.cosine >= LEAST_COSINE:
            raise PrecisionLost(f"in {name_of(context.dtype)} its cosine to float32 falls to {proof.cosine:.5f}")
        if self.judged is not None:
            judge, probe, expected = self.judged
            refusal = judge.refusal(runner.forward(probe), expected)
            if refusal is not None:
                raise PrecisionLost(f"in {name_of(context.dtype)} {refusal}")
        return proof


def prove(runner: Runner, probe: Batch, expected: torch.Tensor, dtype: torch.dtype) -> Proof:
    """Compare `runner`, which computes in `dtype`, over the packed probe with `expected`, `[total_tokens, hidden]`.

    Raises:
        RunnerUnfitError: The error is beyond the precision's tolerance.
    """
    states = runner.forward(probe)
    error = relative_error(states, expected)
    if not error <= TOLERANCE[dtype]:
        filled = "" if probe.key_lengths is None else " where nothing attends to its last tokens"
        raise RunnerUnfitError(f"its states differ from each sequence alone{filled} by {error:.1e}")
    return Proof(error, least_cosine(states, expected, [place.stop - place.start for place in probe.spans()]))


def states_alone(model: Any, probe: Batch) -> torch.Tensor:
    """Run each probe sequence alone through the model's own forward pass: `[total_tokens, hidden]`."""
    lengths = probe.cu_seqlens.diff() if probe.key_lengths is None else probe.key_lengths
    seen = seen_tokens(probe.cu_seqlens, lengths).to(probe.ids.device)
    # Without a mask, some classes take a padding token that a text spells out for padding.
    masked = probe.key_lengths is not None or "attention_mask" in forward_arguments(model)
    parts = []
    for place in probe.spans():
        arguments = {"input_ids": probe.ids[place][None]}
        if masked:
            arguments["attention_mask"] = seen[place][None].long()
        if probe.types is not None:
            arguments["token_type_ids"] = probe.types[place][None]
        parts.append(model(**arguments).last_hidden_state[0])
    return torch.cat(parts)


def states_together(model: Any, probe: Batch) -> torch.Tensor:
    """Run the probe sequences in one padded batch through the model's own forward pass: `[total_tokens, hidden]`.

    One pass reads the weights once. In the few classes in which padding changes states, that appears as a loss of
    precision.
    """
    if "attention_mask" not in forward_arguments(model):
        return states_alone(model, probe)
    lengths = probe.cu_seqlens.diff().tolist()
    padding = next(iter(special_tokens(model.config)), 0)

    def padded(flat: torch.Tensor, value: int) -> torch.Tensor:
        return pad_sequence(list(torch.split(flat, lengths)), batch_first=True, padding_value=value)

    seen = padded(torch.ones_like(probe.ids), 0)
    arguments = {"input_ids": padded(probe.ids, padding), "attention_mask": seen}
    if probe.types is not None:
        arguments["token_type_ids"] = padded(probe.types, 0)
    try:
        states: torch.Tensor = model(**arguments).last_hidden_state[seen.bool()]
    except Exception as fault:  # some classes fail on padding, whatever it raises
        if device_fault(fault) is not None:
            raise
        return states_alone(model, probe)
    return states


def _reference(model: Any, probe: Batch, mapped: MappedFiles) -> torch.Tensor:
    try:
        with widened(model, mapped) if probe.ids.device.type == "cpu" else nullcontext():
            expected = states_alone(model, probe)
    except Exception as fault:
        taken = "token ids alone" if probe.key_lengths is None else "an attention mask"
        raise ModelLoadError(
            "CONFIG", f"{type(model).__name__} does not run on {taken}; it is no text encoder to sie-pytorch."
        ) from fault
    if expected.shape != (len(probe.ids), model.config.hidden_size):
        raise ModelLoadError("CONFIG", f"{type(model).__name__} does not return one state a token.")
    return expected

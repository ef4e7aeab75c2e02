"""Makes the candidates for one model in one precision, one at a time, and has each prove itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from sie_core.contracts import ModelLoadError, device_fault
from sie_pytorch.forward.checkpoint.precision import PrecisionLost, name_of
from sie_pytorch.forward.choice.candidates import Candidate, Requirements, of_other_versions
from sie_pytorch.forward.choice.probes import token_types
from sie_pytorch.forward.choice.proof import Proof, ReferenceStates
from sie_pytorch.forward.protocol import Runner, RunnerContext, RunnerUnfitError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Proven:
    """A runner that passed its proof."""

    candidate: Candidate
    runner: Runner
    proof: Proof


class CandidateFactory:
    """The candidates of one load, and the reasons of the refused ones.

    A runner may take the model's weights, cast them or exchange its attention, so each runner that passed had its own
    model.

    Args:
        load: Loads the model.
        required: The requirements for the runner.

    Raises:
        ModelLoadError: The model cannot be loaded, or is no text encoder.
        Overflow: The model itself overflows in the precision.
    """

    def __init__(self, load: Callable[[], RunnerContext], required: Requirements) -> None:
        self._load = load
        self._context: RunnerContext | None = load()
        self.config = self._context.model.config
        self.types = token_types(self._context.model)
        self.fused = bool(self._context.model._supports_sdpa)
        self.device, self.dtype = self._context.device, self._context.dtype
        self.references = ReferenceStates.of(
            self._context, expands_queries=required.expands_queries, judge=required.judge
        )
        self.refused = of_other_versions(required)
        self.rounds_too_much = False
        """Whether half precision moved a runner's states or logits too far; those after it are not asked in it."""

    @property
    def context(self) -> RunnerContext:
        """A model that no proven runner has taken: the one of the refused, or loaded anew."""
        if self._context is None:
            self._context = self._load()
        return self._context

    def attempt(self, candidate: Candidate) -> Proven | None:
        """Make a runner and have it prove itself; None if it is refused.

        Raises:
            ModelLoadError: The runner was requested by name and cannot run at all.
            Exception: Whatever the device cannot survive.
        """
        context = self.context
        try:
            # Made before windows are narrowed: a runner that copies their widths then fails, instead of keeping 16.
            runner = candidate.made(context)
            proof = self.references.prove(runner, context)
        except RunnerUnfitError as reason:
            self.refused.append(f"not {candidate.name}: {reason}")
            return None
        except PrecisionLost as reason:
            self.refused.append(f"not {candidate.name}: {reason}")
            self.rounds_too_much = True
            return None
        except Exception as fault:  # a runner may be anyone's: its fault costs only itself
            if isinstance(fault, ModelLoadError) or device_fault(fault) is not None:
                raise
            logger.warning("The %s runner failed its proof", candidate.name, exc_info=True)
            self.refused.append(f"not {candidate.name}: it failed with {type(fault).__name__}")
            return None
        self._context = None
        return Proven(candidate, runner, proof)

    def failure(self) -> Exception:
        """Make the error of a model that no candidate serves."""
        reasons = "; ".join(self.refused)
        if self.rounds_too_much or self.dtype is not self.references.dtype:
            return PrecisionLost(f"no runner keeps its states in {name_of(self.dtype)}: {reasons}")
        return ModelLoadError("CONFIG", f"No runner serves this {self.config.model_type} model: {reasons}.")

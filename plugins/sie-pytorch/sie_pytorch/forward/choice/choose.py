"""Chooses the runner of one load: by name, by priority, by an earlier load's measurement, or by a race."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import transformers

from sie_core.contracts import KeptChoice, KeptChoices
from sie_pytorch.forward.choice.candidates import (
    ATTENTION_BACKENDS,
    AUTO,
    PACKED,
    PADDED,
    PRIORITY,
    Candidate,
    Requirements,
    padded,
    registered,
)
from sie_pytorch.forward.choice.factory import CandidateFactory, Proven
from sie_pytorch.forward.choice.race import Race

ABOUT = "runner"
"""Subject under which the choice is kept."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The runner that serves, and why."""

    proven: Proven
    refused: tuple[str, ...]
    """Why candidates before it do not serve."""
    race: str | None = None
    """The measurements of the race; None if there was none."""

    @property
    def reason(self) -> str:
        """Describe it in words."""
        proof = f"equals each probe sequence alone within {self.proven.proof.error:.0e}"
        return "; ".join([*self.refused, proof])


def choose(
    factory: CandidateFactory, required: Requirements, kept: KeptChoices | None, setup: dict[str, str]
) -> Choice:
    """Choose among all candidates for a model.

    Args:
        factory: Makes and proves them.
        required: The requirements for the runner.
        kept: Choices of earlier loads of the weights; None if no race may be run.
        setup: Conditions of the choice, other than the weights and the machine.

    Raises:
        ModelLoadError: No runner serves the model.
        PrecisionLost: No runner serves it in this precision.
    """
    fast = registered(required, factory.config.model_type, factory.device.type)
    last = list(padded(required, fused=factory.fused))
    named = required.runner != AUTO or required.attention_backend not in ATTENTION_BACKENDS
    alone = len(fast) + len(last) == 1
    if named or alone or kept is None or all(each.name == PACKED for each in fast):
        order = [*last, *fast] if required.runner == PADDED else [*fast, *last]
        if required.runner not in (AUTO, PRIORITY, *(each.name for each in order)):
            factory.refused.append(
                f"not {required.runner}: it serves no {factory.config.model_type} on {factory.device.type} with the "
                f"attention backend {required.attention_backend}"
            )
        return _first(factory, order)
    setup = {
        **setup,
        "attention backend": required.attention_backend,
        "key lengths": str(required.expands_queries),
        "LoRA": str(required.takes_lora),
        "candidates": ", ".join(each.name for each in fast),
        "builds": "; ".join(spec.build for spec in required.specs if spec.build),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    before = kept.recall(ABOUT, setup)
    recalled = None if before is None or not before.settled else _recalled(factory, [*fast, *last], before)
    if recalled is not None:
        return recalled
    race = Race(factory)
    proven = race.run(fast, last)
    if race.whole:
        name = proven.candidate.name
        agreed = before is not None and before.chosen == name
        kept.keep(KeptChoice(ABOUT, name, str(race), setup=setup, settled=agreed or race.clear))
    return Choice(proven, tuple(factory.refused), str(race))


def _first(factory: CandidateFactory, candidates: Iterable[Candidate]) -> Choice:
    """Take the first that proves itself."""
    for candidate in candidates:
        proven = factory.attempt(candidate)
        if proven is not None:
            return Choice(proven, tuple(factory.refused))
        if factory.rounds_too_much:
            break
    raise factory.failure()


def _recalled(factory: CandidateFactory, candidates: Sequence[Candidate], choice: KeptChoice) -> Choice | None:
    """Take the runner that an earlier load chose; None if there is none, or it no longer proves itself."""
    candidate = next((each for each in candidates if each.name == choice.chosen), None)
    if candidate is None:
        return None
    before = list(factory.refused)
    proven = factory.attempt(candidate)
    if proven is None:
        factory.refused, factory.rounds_too_much = before, False  # the race tries it again
        return None
    return Choice(proven, tuple(factory.refused), f"{choice.reason} (measured by an earlier load)")

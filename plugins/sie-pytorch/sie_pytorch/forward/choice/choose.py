"""Chooses the runner of one load: by name, by priority, by what an earlier load measured, or by a race."""

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
    Wanted,
    padded,
    registered,
)
from sie_pytorch.forward.choice.race import Race
from sie_pytorch.forward.choice.trials import Proven, Trials

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
        """Say it in words."""
        proof = f"equals each probe sequence alone within {self.proven.proof.error:.0e}"
        return "; ".join([*self.refused, proof])


def choose(trials: Trials, wanted: Wanted, kept: KeptChoices | None, setup: dict[str, str]) -> Choice:
    """Choose among all candidates for a model.

    Args:
        trials: Makes and proves them.
        wanted: The requirements for the runner.
        kept: Choices of earlier loads of the weights; None if no race may be run.
        setup: Conditions of the choice, other than the weights and the machine.

    Raises:
        ModelLoadError: No runner serves the model.
        PrecisionLost: No runner serves it in this precision.
    """
    fast = registered(wanted, trials.config.model_type, trials.device.type)
    last = list(padded(wanted, fused=trials.fused))
    named = wanted.runner != AUTO or wanted.attention_backend not in ATTENTION_BACKENDS
    alone = len(fast) + len(last) == 1
    if named or alone or kept is None or all(each.name == PACKED for each in fast):
        order = [*last, *fast] if wanted.runner == PADDED else [*fast, *last]
        if wanted.runner not in (AUTO, PRIORITY, *(each.name for each in order)):
            trials.refused.append(
                f"not {wanted.runner}: it serves no {trials.config.model_type} on {trials.device.type} with the "
                f"attention backend {wanted.attention_backend}"
            )
        return _first(trials, order)
    setup = {
        **setup,
        "attention backend": wanted.attention_backend,
        "key lengths": str(wanted.fills_up),
        "LoRA": str(wanted.takes_lora),
        "candidates": ", ".join(each.name for each in fast),
        "builds": "; ".join(spec.build for spec in wanted.specs if spec.build),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    before = kept.recall(ABOUT, setup)
    recalled = None if before is None or not before.settled else _recalled(trials, [*fast, *last], before)
    if recalled is not None:
        return recalled
    race = Race(trials)
    proven = race.run(fast, last)
    if race.whole:
        name = proven.candidate.name
        agreed = before is not None and before.chosen == name
        kept.keep(KeptChoice(ABOUT, name, str(race), setup, settled=agreed or race.clear))
    return Choice(proven, tuple(trials.refused), str(race))


def _first(trials: Trials, candidates: Iterable[Candidate]) -> Choice:
    """Take the first that proves itself."""
    for candidate in candidates:
        proven = trials.attempt(candidate)
        if proven is not None:
            return Choice(proven, tuple(trials.refused))
        if trials.rounds_too_much:
            break
    raise trials.failure()


def _recalled(trials: Trials, candidates: Sequence[Candidate], choice: KeptChoice) -> Choice | None:
    """Take the runner that an earlier load chose; None if there is none, or it no longer proves itself."""
    candidate = next((each for each in candidates if each.name == choice.chosen), None)
    if candidate is None:
        return None
    before = list(trials.refused)
    proven = trials.attempt(candidate)
    if proven is None:
        trials.refused, trials.rounds_too_much = before, False  # the race tries it again
        return None
    return Choice(proven, tuple(trials.refused), f"{choice.reason} (measured by an earlier load)")

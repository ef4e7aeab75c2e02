"""What the families claim: checkpoints of their kind whose forward pass the kernels compute."""

from __future__ import annotations

from dataclasses import replace

from sie_text.architectures import Feature
from sie_text.recipe import NotUnderstoodError, of_found_weights

from sie_core.contracts import Claim, ClaimFunction, ModelCard, ModelLoadError, NoClaim
from sie_cpu.builds import choose_build
from sie_cpu.checkpoint.settings import read_settings

FEATURES = frozenset(Feature)
"""What the kernels compute."""
AHEAD = 5
"""Added to the priority of a claim: sie-pytorch serves what the kernels do not."""


def on_kernels(claims: ClaimFunction) -> ClaimFunction:
    """Make a claim function that gives the reason in place of a claim on what the kernels do not compute."""

    def claim(card: ModelCard) -> Claim | NoClaim | None:
        found = claims(card)
        if not isinstance(found, Claim):
            return found
        try:
            choose_build("float32")
            read_settings(card, FEATURES)
        except (NotUnderstoodError, OSError, ValueError) as reason:
            return NoClaim(f"without PyTorch, {str(reason).rstrip('.')}")
        except ModelLoadError as reason:
            return NoClaim(str(reason).rstrip("."))
        return replace(found, priority=found.priority + AHEAD)

    return of_found_weights(claim)

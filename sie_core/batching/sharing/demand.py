"""What a request asks of a queue, before it is prepared and after."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from sie_core.contracts import InferenceRequest, ModelFacts

# Characters a token: rather many, as a request may only be refused unprepared where it surely costs so much.
TOKEN_CHARACTERS: Final = 6


@dataclass(slots=True)
class Demand:
    """What a request is about to queue."""

    # Whose it is, and at which weight.
    who: tuple[Hashable, float]
    # What a request that is sent again has in common with itself.
    token: Hashable
    deadline: float | None
    cost: int = 0
    # With what is still to be prepared of it.
    whole_cost: int = 0
    # Whether the costs are those of what was prepared, and no guesses.
    prepared: bool = True
    # Whether it came back when it was told to.
    promised: bool = False


def least_cost(request: InferenceRequest, facts: ModelFacts) -> int:
    """Guess from the length of its texts what a request costs at least."""
    most = facts.max_sequence_length
    query = 0 if request.query is None else len(request.query.text or "")
    costs = [max(1, (len(item.text or "") + query) // TOKEN_CHARACTERS) for item in request.items]
    return sum(costs if most is None else (min(most, cost) for cost in costs))


def fingerprint(request: InferenceRequest) -> Hashable:
    """Return what a request that is sent again has in common with itself; others may have it too."""
    parts = [(each.text or "")[:64] for each in request.items[:16]]
    length = sum(len(each.text or "") + sum(len(image.data) for image in each.images) for each in request.items)
    return hash((request.client, request.model, request.operation, len(request.items), length, *parts))

"""What a request asks of a queue, before it is prepared and after."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from sie_core.contracts import InferenceRequest, ModelFacts

# Characters a token, at most and at least, by which a request is judged before it is prepared.
MOST_CHARACTERS: Final = 6.0
LEAST_CHARACTERS: Final = 3.0
# So many of the tokens are to be of requests that cost no less than guessed. A request of `_STEP_TOKENS` moves the
# characters a token by `_STEP` at most, a smaller one by so much less: cheap ones must not decide for all.
_QUANTILE: Final = 0.75
_STEP: Final = 0.05
_STEP_TOKENS: Final = 1000
# Special tokens of a text, at most. Shorter texts teach nothing: those are too much of them.
_SPECIAL_TOKENS: Final = 3
_LEAST_LENGTH: Final = 50


@dataclass(slots=True, eq=False)
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
    # Whether it is judged by a guess on the thread that prepares it: others that are being prepared are not before it.
    begun: bool = False
    # Whether it passed by a guess before it was prepared.
    guessed: bool = False
    # Whether it came back when it was told to.
    promised: bool = False


class TextCosts:
    """Guesses what a model's requests cost, by the length of their texts.

    A refusal after preparation takes the CPU as much time as an answer, and at overload most requests are refused. So
    the characters a token are learned: the quantile `_QUANTILE` of those of late, by H. Robbins and S. Monro, "A
    Stochastic Approximation Method", Annals of Mathematical Statistics 1951. Used from any thread: a race loses what
    one request taught.
    """

    def __init__(self) -> None:
        self._characters = MOST_CHARACTERS

    def guess(self, request: InferenceRequest, facts: ModelFacts) -> int:
        """Guess what a request costs, rather less than it does."""
        most, characters = facts.max_sequence_length, self._characters
        costs = [max(1, int(each / characters)) for each in _lengths(request)]
        return sum(costs if most is None else (min(most, cost) for cost in costs))

    def learn(self, request: InferenceRequest, facts: ModelFacts, cost: int) -> None:
        """Learn from what a prepared request costs, where its texts are all that does."""
        lengths, most = _lengths(request), facts.max_sequence_length
        tokens = cost - _SPECIAL_TOKENS * len(lengths)
        if tokens <= 0 or sum(lengths) < _LEAST_LENGTH * len(lengths) or not _is_text(request):
            return
        characters = sum(lengths) / tokens
        if most is not None and max(lengths) >= 0.9 * most * characters:  # it may be cut
            return
        step = _STEP * min(1.0, tokens / _STEP_TOKENS)
        moved = self._characters + step * (_QUANTILE - (characters <= self._characters))
        self._characters = min(MOST_CHARACTERS, max(LEAST_CHARACTERS, moved))


def _is_text(request: InferenceRequest) -> bool:
    # Whether texts without an instruction or labels are all that costs tokens.
    if request.instruction or request.labels or request.output_schema is not None:
        return False
    return not any(each.images or each.audio or each.video or each.document for each in request.items)


def _lengths(request: InferenceRequest) -> list[int]:
    query = 0 if request.query is None else len(request.query.text or "")
    return [len(item.text or "") + query for item in request.items]


def fingerprint(request: InferenceRequest) -> Hashable:
    """Return what a request that is sent again has in common with itself; others may have it too."""
    parts = [(each.text or "")[:64] for each in request.items[:16]]
    length = sum(len(each.text or "") + sum(len(image.data) for image in each.images) for each in request.items)
    return hash((request.client, request.model, request.operation, len(request.items), length, *parts))

"""How much later than predicted requests end, in batches, learned from those who were late. Pure."""

from __future__ import annotations

from typing import Final

# A batch's time weighs this much less with each later one.
_MEMORY: Final = 0.9
# Of so many requests with a deadline one may be late.
_IN_TIME: Final = 200
# After so many late ones the allowance is a batch larger.
_WHOLE: Final = 8
# Batches that are allowed for at most: its own one, and that those before it take longer than predicted.
_MOST: Final = 1.5


class Lateness:
    """How much longer than predicted a model's requests take, as each ends with its batch.

    What comes later fills a batch up, so who is predicted to end in the middle of one ends up to a batch later. Where
    batches are a good part of a deadline, as they are when half a second is given, who was admitted without regard to
    that has no time left when its turn comes: its batch is cut short, and a device of short batches is slower. Where
    nobody is late nothing is allowed for: a server that is just busy would refuse whom it could serve.
    """

    def __init__(self) -> None:
        self._batches = 0.0
        self._weight = self._seconds = 0.0

    def record(self, seconds: float) -> None:
        """Note that a batch that left others waiting held them up for so many seconds."""
        self._weight = self._weight * _MEMORY + 1.0
        self._seconds = self._seconds * _MEMORY + seconds

    def ended(self, late: int, in_time: int) -> None:
        """Note that so many requests with a deadline ended late or were dropped as late, and so many ended in time."""
        self._batches = min(_MOST, max(0.0, self._batches + (late - in_time / _IN_TIME) / _WHOLE))

    def allowance_s(self, waiting_s: float) -> float:
        """Return what to add to the wait of a request that makes `waiting_s` of work with those before it."""
        return self._batches * min(waiting_s, self._seconds / self._weight) if self._weight else 0.0

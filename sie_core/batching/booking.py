"""When refused requests may come back: one after the other, at the pace at which they can be answered."""

from __future__ import annotations

from math import ceil
from typing import Final

# The longest `Retry-After`, in seconds: few clients wait for longer.
LONGEST_S: Final = 60.0


class Booking:
    """A clock that says up to when all time is taken, if whoever was refused comes back as told."""

    def __init__(self) -> None:
        self._until = 0.0

    def retry_after_s(self, now: float, free_s: float, own_s: float) -> float:
        """Book time for a refused request.

        Args:
            now: Seconds.
            free_s: Until there is room for it.
            own_s: How long it takes.

        Returns:
            The seconds, whole ones as `Retry-After` states them, after which it may come back.
        """
        at = max(self._until, now + free_s)
        if at - now >= LONGEST_S:
            return LONGEST_S
        self._until = at + own_s
        return float(max(1, ceil(at - now)))

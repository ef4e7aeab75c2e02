"""How long a thread may hold the interpreter's lock while others want it: less while a large request is at work.

A thread takes the lock anew after every call that gave it up, such as each operation of a forward pass. Beside a thread
that computes in Python it waits for the whole interval each time: by Python's own 5 ms a batch of 3 ms takes hundreds.
A short interval for good would cost many small requests a fifth of their throughput, as threads then take the lock from
each other in the middle of what would have been done in a moment.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SHORT_S: Final = 0.0005


class Switching:
    """Shortens the interval while anything large is at work. Used on the event loop."""

    def __init__(self) -> None:
        self._at_work = 0
        self._usual_s = sys.getswitchinterval()

    @property
    def is_shortened(self) -> bool:
        """Whether anything large is at work."""
        return self._at_work > 0

    @contextmanager
    def shortened(self) -> Iterator[None]:
        """Count something large as at work."""
        self._begin()
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count something large, within `shortened`, as not at work: it may wait for minutes."""
        self._end()
        try:
            yield
        finally:
            self._begin()

    def _begin(self) -> None:
        if not self._at_work:
            self._usual_s = sys.getswitchinterval()
            sys.setswitchinterval(min(SHORT_S, self._usual_s))
        self._at_work += 1

    def _end(self) -> None:
        self._at_work -= 1
        if not self._at_work:
            sys.setswitchinterval(self._usual_s)


SWITCHING: Final = Switching()
"""Of the process, as the interval is."""

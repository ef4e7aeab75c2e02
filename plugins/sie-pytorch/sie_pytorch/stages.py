"""Times the stages of a load, and keeps it from drawing on the terminal. It knows nothing of what is loaded."""

from __future__ import annotations

import time

from sie_core.contracts import LoadContext


class Stages:
    """A stopwatch that reports each stage of a load to its context."""

    def __init__(self, context: LoadContext) -> None:
        self._report = context.stage
        self._began = time.perf_counter()

    def done(self, name: str) -> None:
        """Report the stage that ends now; the next one begins."""
        now = time.perf_counter()
        self._report(name, now - self._began)
        self._began = now


def disable_progress_bars() -> None:
    """Keep transformers' progress bars out of the server's log, where each would be a line of its own."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()

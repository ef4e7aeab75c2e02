"""The progress of fetching a model's weights, whether it has stalled, and that of a load."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Container
from typing import TextIO

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""The longest time between two lines in the log on a fetch that makes progress."""
DRAWN_EVERY_S = 0.1
"""The least time between two drawings of a bar."""
BAR_WIDTH = 30
"""Characters of a bar."""
LOAD_FIRST_S = 2.0
"""Seconds of a load until it is shown; the pauses between lines in the log double from there on."""
LOAD_REDRAWN_S = 0.5
"""Seconds between two drawings of a load's bar."""
STAGES = ("import", "load.tokenizer", "load.weights", "load.warm")
"""Stages of a load in their order; a family may leave some out."""
STAGE_WIDTH = 8
"""Characters of a load's bar for each stage."""


class DownloadProgress:
    """The progress of one fetch, in bytes.

    Args:
        limit_s: Seconds without progress after which that is a problem.
        clock: Monotonic seconds.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._moved_at = clock()
        self._done = self._total = 0

    def moved(self, done: int, total: int) -> None:
        """Record that `done` of `total` bytes are here; called from any thread."""
        if (done, total) != (self._done, self._total):
            self._done, self._total, self._moved_at = done, total, self._clock()

    def problem(self) -> str | None:
        """Describe a fetch that made no progress for `limit_s`; None for any other."""
        if (idle := self._clock() - self._moved_at) <= self._limit_s:
            return None
        return f"nothing has come of its weights for {idle:.0f} s: {self.describe()}"

    def left_s(self, elapsed_s: float) -> float | None:
        """Predict the remaining seconds of the fetch from its pace so far; None before any byte."""
        return elapsed_s * (self._total - self._done) / self._done if self._done else None

    def describe(self) -> str:
        """Describe how many bytes were fetched."""
        return f"{self._done / 1e6:.0f} of {self._total / 1e6:.0f} MB" if self._total else "nothing yet"


class ShownProgress:
    """Shows one fetch: as a bar on a terminal, otherwise as a line in the log for each tenth or every `EVERY_S`.

    Args:
        who: Name of the weights.
        bar: The terminal; None for lines in the log.
        clock: Monotonic seconds.
    """

    def __init__(self, who: str, bar: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._who, self._bar, self._clock = who, bar, clock
        self._tenth, self._shown_at = 0, clock()
        self._drawn = self._whole = False

    def moved(self, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are here; called from one thread at a time."""
        now, share = self._clock(), min(1.0, done / total) if total else 0.0
        waited = now - self._shown_at
        said = f"{100 * share:3.0f} %, {done / 1e6:.0f} of {total / 1e6:.0f} MB"
        if self._bar is not None:
            if not self._whole and (waited >= DRAWN_EVERY_S or share == 1.0):
                filled = int(BAR_WIDTH * share)
                print(f"\r{self._who} [{'#' * filled:<{BAR_WIDTH}}] {said}", end="", file=self._bar, flush=True)
                self._drawn, self._shown_at, self._whole = True, now, share == 1.0
                if self._whole:
                    self.close()  # lines of the log follow
        elif int(10 * share) > self._tenth or waited >= EVERY_S:
            log.info("%s: %s fetched", self._who, said.strip())
            self._tenth, self._shown_at = int(10 * share), now

    def close(self) -> None:
        """End the line of the bar."""
        if self._bar is not None and self._drawn:
            print(file=self._bar, flush=True)
            self._drawn = False


async def show_load(
    model: str,
    ended: Container[str],
    bar: TextIO | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Show a load that takes long, until the call is cancelled: as a bar on a terminal, otherwise as lines in the log.

    Args:
        model: The model's id.
        ended: The stages that are over; the load adds to them.
        bar: The terminal; None for lines in the log.
        clock: Monotonic seconds.
        sleep: Waits for seconds.
    """
    started, pause_s, drawn = clock(), LOAD_FIRST_S, False
    try:
        while True:
            await sleep(pause_s)
            seconds = clock() - started
            done = max((place for place, stage in enumerate(STAGES, start=1) if stage in ended), default=0)
            stage = STAGES[min(done, len(STAGES) - 1)].removeprefix("load.")
            if bar is None:
                log.info("%s has been loading for %.0f s: %s", model, seconds, stage)
                pause_s *= 2
            else:
                filled = f"{'#' * STAGE_WIDTH * done:<{STAGE_WIDTH * len(STAGES)}}"
                print(f"\r{model} [{filled}] {stage}, {seconds:.0f} s ", end="", file=bar, flush=True)
                drawn, pause_s = True, LOAD_REDRAWN_S
    finally:
        if drawn:
            print(file=bar, flush=True)

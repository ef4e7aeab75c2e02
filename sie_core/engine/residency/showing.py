"""Shows a load that takes long: as a bar on a terminal, otherwise as lines in the log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Container
from typing import TextIO

log = logging.getLogger(__name__)

FIRST_S = 2.0
"""Seconds of a load until it is shown; the pauses between lines in the log double from there on."""
REDRAWN_S = 0.5
"""Seconds between two drawings of a bar."""
STAGES = ("import", "load.tokenizer", "load.weights", "load.warm")
"""Stages of a load in their order; a family may leave some out."""
PART = 8
"""Characters of a bar for each stage."""


async def show(
    model: str,
    ended: Container[str],
    bar: TextIO | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Show a load until the call is cancelled.

    Args:
        model: The model's id.
        ended: The stages that are over; the load adds to them.
        bar: The terminal; None for lines in the log.
        clock: Monotonic seconds.
        sleep: Waits for seconds.
    """
    started, pause_s, drawn = clock(), FIRST_S, False
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
                filled = f"{'#' * PART * done:<{PART * len(STAGES)}}"
                print(f"\r{model} [{filled}] {stage}, {seconds:.0f} s ", end="", file=bar, flush=True)
                drawn, pause_s = True, REDRAWN_S
    finally:
        if drawn:
            print(file=bar, flush=True)

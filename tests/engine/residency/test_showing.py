"""What is shown of a load that takes long, on a terminal and in the log."""

from __future__ import annotations

import asyncio
import io
import logging

import pytest

from sie_core.engine.residency.showing import show


async def shown(bar: io.StringIO | None) -> None:
    """Show a load of three pauses, after each of which a stage is over."""
    now, ended, over = 0.0, set[str](), ["room", "import", "load.weights"]

    async def sleep(seconds: float) -> None:
        nonlocal now
        if not over:
            raise asyncio.CancelledError
        now += seconds
        ended.add(over.pop(0))

    with pytest.raises(asyncio.CancelledError):
        await show("org/m", ended, bar, lambda: now, sleep)


async def test_the_log_has_lines_in_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await shown(None)
    assert [record.getMessage() for record in caplog.records] == [
        f"org/m has been loading for {seconds} s: {stage}"
        for seconds, stage in ((2, "import"), (6, "tokenizer"), (14, "warm"))
    ]


async def test_a_terminal_has_a_bar_whose_line_ends(caplog: pytest.LogCaptureFixture) -> None:
    terminal = io.StringIO()
    await shown(terminal)
    _, first, second, third = terminal.getvalue().split("\r")
    assert first == f"org/m [{'':<32}] import, 2 s "
    assert second == f"org/m [{'#' * 8:<32}] tokenizer, 2 s "
    assert third == f"org/m [{'#' * 24:<32}] warm, 3 s \n"
    assert caplog.records == []

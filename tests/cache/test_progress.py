"""What is shown of a download and of a load, on a terminal and in the log."""

from __future__ import annotations

import asyncio
import io
import logging

import pytest

from sie_core.cache.progress import EVERY_S, ShownProgress, show_load

MB = 10**6


def test_the_log_has_a_line_for_each_tenth_and_for_each_pause(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    shown = ShownProgress("org/m", None, lambda: now)
    with caplog.at_level(logging.INFO):
        for done in range(31):
            shown.moved(done * MB, 100 * MB)
        now += EVERY_S
        shown.moved(31 * MB, 100 * MB)
        shown.moved(32 * MB, 100 * MB)
    assert [record.getMessage() for record in caplog.records] == [
        f"org/m: {share} %, {share} of 100 MB fetched" for share in (10, 20, 30, 31)
    ]


def test_a_terminal_has_a_bar_whose_line_ends(caplog: pytest.LogCaptureFixture) -> None:
    now, terminal = 0.0, io.StringIO()
    shown = ShownProgress("org/m", terminal, lambda: now)
    with caplog.at_level(logging.INFO):
        now += 1.0
        shown.moved(5 * MB, 10 * MB)
        shown.moved(6 * MB, 10 * MB)
        shown.moved(10 * MB, 10 * MB)
        shown.moved(10 * MB, 10 * MB)
        shown.close()
    half, whole = terminal.getvalue().removeprefix("\r").split("\r")
    assert half == f"org/m [{'#' * 15:<30}]  50 %, 5 of 10 MB"
    assert whole == f"org/m [{'#' * 30}] 100 %, 10 of 10 MB\n"
    assert caplog.records == []


async def shown_load(bar: io.StringIO | None) -> None:
    """Show a load of three pauses, after each of which a stage is over."""
    now, ended, over = 0.0, set[str](), ["room", "import", "load.weights"]

    async def sleep(seconds: float) -> None:
        nonlocal now
        if not over:
            raise asyncio.CancelledError
        now += seconds
        ended.add(over.pop(0))

    with pytest.raises(asyncio.CancelledError):
        await show_load("org/m", ended, bar, lambda: now, sleep)


async def test_the_log_has_lines_of_a_load_in_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await shown_load(None)
    assert [record.getMessage() for record in caplog.records] == [
        f"org/m has been loading for {seconds} s: {stage}"
        for seconds, stage in ((2, "import"), (6, "tokenizer"), (14, "warm"))
    ]


async def test_a_terminal_has_a_bar_of_a_load_whose_line_ends(caplog: pytest.LogCaptureFixture) -> None:
    terminal = io.StringIO()
    await shown_load(terminal)
    _, first, second, third = terminal.getvalue().split("\r")
    assert first == f"org/m [{'':<32}] import, 2 s "
    assert second == f"org/m [{'#' * 8:<32}] tokenizer, 2 s "
    assert third == f"org/m [{'#' * 24:<32}] warm, 3 s \n"
    assert caplog.records == []

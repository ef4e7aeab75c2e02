"""What is shown of a download, on a terminal and in the log."""

from __future__ import annotations

import io
import logging

import pytest

from sie_core.cache.progress import EVERY_S, ShownProgress

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

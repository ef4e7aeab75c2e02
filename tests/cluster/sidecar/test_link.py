"""The connections of a sidecar to its adapter process."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from sie_core.cluster.sidecar.adapter import link
from sie_core.cluster.sidecar.adapter.link import Link


async def test_an_adapter_process_that_nobody_reaches_is_told_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = asyncio.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    def nothing(*given: object) -> None: ...

    monkeypatch.setattr(link, "SILENT_S", 0.01)
    monkeypatch.setattr(link, "AGAIN_S", 0.01)
    handler = Told()
    logging.getLogger(link.__name__).addHandler(handler)
    path = tmp_path / "nobody.sock"
    running = asyncio.create_task(Link("w1", path, 1, 1.0, 3.0, False, *[nothing] * 9).run())
    try:
        async with asyncio.timeout(30):
            await told.wait()
    finally:
        running.cancel()
        logging.getLogger(link.__name__).removeHandler(handler)
    assert f"no connection to the adapter process at {path}" in caplog.text

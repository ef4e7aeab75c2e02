"""An adapter process tells of itself until its end."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from sie_cluster.ipc.listening import listen_on
from sie_cluster.settings import ClusterSettings
from sie_cluster.worker import serving
from sie_cluster.worker.intake import Intake
from sie_cluster.worker.serving import answer_slices

from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.serving.listening import listen

BOUND_S = 30.0


async def test_what_changes_while_it_ends_is_told_after_its_port_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Intake] = []

    def keep(*arguments: object, **named: object) -> Intake:
        made.append(Intake(*arguments, **named))  # type: ignore[arg-type]
        return made[0]

    monkeypatch.setattr(serving, "Intake", keep)
    settings, ready = ClusterSettings(plugins=("fake",), device="cpu", models_dir=tmp_path), asyncio.Event()
    with listen("127.0.0.1", 0) as listener, listen_on(tmp_path / "ipc") as entry:
        plugins = discover(settings, BUILTINS)
        work = asyncio.create_task(answer_slices(settings, plugins, listener, entry, ready.set, None))
        async with asyncio.timeout(BOUND_S):
            await ready.wait()
        listener.close()
        made[0].tell()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

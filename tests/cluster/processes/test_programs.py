"""Programs that run beside a process: what ends is started again, each time later, and what does not end is killed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from sie_cluster.programs import processes
from sie_cluster.programs.processes import Program

BOUND_S = 30.0
STUBBORN = "import pathlib, signal, sys, time; signal.signal(15, 1); pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"


async def test_what_ends_is_started_again_after_a_pause_that_doubles(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(processes, "MOST_PAUSE_S", 0.05)
    program = Program("short", [sys.executable, "-c", "raise SystemExit(3)"], {})
    running = asyncio.create_task(program.run())
    async with asyncio.timeout(BOUND_S):
        while program.restarts < 4:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    await program.stop(BOUND_S)
    await running
    pauses = re.findall(r"short ended with 3; it is started again in (\S+) s", caplog.text)
    assert pauses[:4] == ["0.02", "0.04", "0.05", "0.05"]


@pytest.mark.parametrize(("steady_s", "code"), [(0.0, 3), (BOUND_S, 0)], ids=["ran for a while", "ended in order"])
async def test_what_could_run_is_started_again_after_the_first_pause_each_time(
    steady_s: float, code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(processes, "STEADY_S", steady_s)
    program = Program("short", [sys.executable, "-S", "-c", f"raise SystemExit({code})"], {})
    running = asyncio.create_task(program.run())
    async with asyncio.timeout(BOUND_S):
        while program.restarts < 3:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    await program.stop(BOUND_S)
    await running
    assert re.findall(r"it is started again in (\S+) s", caplog.text)[:3] == ["0.01"] * 3


async def test_what_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    began = tmp_path / "began"
    program = Program("stubborn", [sys.executable, "-c", STUBBORN, str(began)], {})
    running = asyncio.create_task(program.run())
    async with asyncio.timeout(BOUND_S):
        while not began.exists():  # noqa: ASYNC110 - another process tells by the file
            await asyncio.sleep(0.01)
        await program.stop(0.1)
        await running
    assert (program.pid, program.restarts) == (None, 0)


async def test_what_cannot_be_started_now_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 0.01)
    late = tmp_path / "late"
    program = Program("late", [str(late)], {})
    running = asyncio.create_task(program.run())
    async with asyncio.timeout(BOUND_S):
        while program.restarts < 1:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        script = tmp_path / "script"
        script.write_text("#!/bin/sh\nexec sleep 60\n")
        script.chmod(0o700)
        script.rename(late)
        while program.pid is None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    await program.stop(BOUND_S)
    await running


def test_a_worker_without_an_engine_ends_with_its_sidecar_and_says_why(tmp_path: Path) -> None:
    socket = str(tmp_path / "ipc")
    env = {"SIE_IPC_SOCKET_PATH": socket, "SIE_DEVICE": "none", "SIE_WORKER_METRICS_PORT": "0"}
    ended = subprocess.run(
        [Path(sys.executable).with_name("sie"), "worker", "--port", "0", "--with-sidecar"],
        env={**os.environ, **env, "SIE_NATS_URL": "nats://127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ended.returncode == 1
    assert "SIE_DEVICE=none" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not [each for each in psutil.process_iter() if _variable(each, "SIE_IPC_SOCKET_PATH") == socket]
    assert not Path(socket).exists()


def _variable(process: psutil.Process, name: str) -> str | None:
    try:
        return process.environ().get(name)
    except psutil.Error:
        return None

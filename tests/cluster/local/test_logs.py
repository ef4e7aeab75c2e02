"""The logs of a cluster's folder: bounded, while programs write on."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from sie_cluster.local import logs
from sie_cluster.local.logs import rotate_logs

BOUND_S = 30.0
"""For a program to write a line."""


def test_a_large_log_is_moved_once_and_its_program_writes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 100)
    file, before = tmp_path / "worker-1.log", tmp_path / "worker-1.log.1"
    with (
        file.open("ab") as out,
        subprocess.Popen(["cat", "-u"], stdin=subprocess.PIPE, stdout=out, bufsize=0) as program,
    ):
        assert program.stdin is not None
        for line, kept, moved in ((b"a" * 60, 60, 0), (b"b" * 60, 0, 120), (b"c" * 60, 60, 120), (b"d" * 70, 0, 130)):
            written = file.stat().st_size + len(line)
            program.stdin.write(line)
            until = time.monotonic() + BOUND_S
            while file.stat().st_size < written:
                assert program.poll() is None
                assert time.monotonic() < until
                time.sleep(0.005)
            rotate_logs(tmp_path)
            assert file.stat().st_size == kept
            assert (before.stat().st_size if before.exists() else 0) == moved
    assert before.read_bytes() == b"c" * 60 + b"d" * 70


def test_a_log_that_cannot_be_kept_is_emptied_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 100)
    file = tmp_path / "worker-1.log"
    file.write_bytes(b"a" * 101)
    (tmp_path / "worker-1.log.1").mkdir()
    rotate_logs(tmp_path)
    assert file.stat().st_size == 0

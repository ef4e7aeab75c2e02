"""`sie models status` against a real server, and how it lays out what it is told."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from sie_core.cli.models.status import FIELDS, table

SIE = Path(sys.executable).with_name("sie")


def status(*arguments, url):
    command = [str(SIE), "models", "status", "--server", url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


def test_it_shows_state_precision_memory_and_last_use(fake_server):
    body = {"model": "sie-fake/dense", "input": ["a"]}
    httpx.post(f"{fake_server}/v1/embeddings", json=body, timeout=60).raise_for_status()
    lines = status(url=fake_server).stdout.splitlines()
    assert lines[0].split() == ["MODEL", "STATE", "SERVED", "BY", "MEMORY", "LAST", "USE"]
    (row,) = [line.split() for line in lines if line.startswith("sie-fake/dense ")]
    assert row[1:4] == ["loaded", "float32", "0"]
    assert row[-1] == "ago"
    rows = json.loads(status("--json", "--all", url=fake_server).stdout)
    assert {row["state"] for row in rows} == {"loaded", "available"}


def test_a_server_that_is_not_there_is_named():
    done = status(url="http://127.0.0.1:9")
    assert done.returncode == 1
    assert "http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0 s ago"), (119, "119 s ago"), (120, "2 min ago"), (7200, "2 h ago"), (3e5, "3 days ago")],
)
def test_a_last_use_is_told_in_round_numbers(seconds, told):
    row = {
        "name": "a",
        "state": "loaded",
        "memory_bytes": 91e6,
        "last_used_at": 1e9,
        "pinned": True,
        "last_error": None,
    }
    assert table([row], 1e9 + seconds)[1].split(maxsplit=5) == ["a", "loaded,", "pinned", "91", "MB", told]


def test_the_progress_of_a_fetch_is_shown() -> None:
    model = {"name": "org/m", "state": "loading", "notes": {"fetch": "3 of 9 MB fetched"}}
    row = {field: model.get(field) for field in FIELDS}  # as the command keeps them
    assert "loading: 3 of 9 MB fetched" in "\n".join(table([row], 0.0))

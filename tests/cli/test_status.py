"""`sie models status` and `sie status` against a real server, and how they lay out what they are told."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from sie_core.cli.models.status import FIELDS, table
from sie_core.cli.status import picture

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


def test_a_server_at_work_is_shown_once(fake_server):
    body = {"model": "sie-fake/dense", "input": ["a"]}
    httpx.post(f"{fake_server}/v1/embeddings", json=body, timeout=60).raise_for_status()
    httpx.post(f"{fake_server}/v1/embeddings", json={"model": "sie-fake/none", "input": ["a"]}, timeout=60)
    done = subprocess.run([str(SIE), "status", "--server", fake_server], capture_output=True, text=True, timeout=60)
    assert "requests/s" in done.stdout.splitlines()[0], done
    assert [line for line in done.stdout.splitlines() if line.startswith("sie-fake/dense ")]
    assert [line for line in done.stdout.splitlines() if line.startswith("MODEL_NOT_FOUND ")]
    nobody = [str(SIE), "status", "--server", "http://127.0.0.1:9"]
    done = subprocess.run(nobody, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "http://127.0.0.1:9" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


@pytest.mark.skipif(os.name != "posix", reason="a terminal of POSIX")
@pytest.mark.usefixtures("heard_signals")
def test_a_key_sorts_while_a_server_is_watched(fake_server):
    body = {"model": "sie-fake/dense", "input": ["a"]}
    httpx.post(f"{fake_server}/v1/embeddings", json=body, timeout=60).raise_for_status()
    mine, theirs = os.openpty()
    command = [str(SIE), "status", "--server", fake_server, "--watch"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        shown = iter(process.stdout.readline, "")
        next(line for line in shown if line.startswith("MODEL "))
        os.write(mine, b"n")
        below = []
        while below != sorted(below) or len(below) < 3:  # sorted by memory, they would be in the order of the catalog
            next(line for line in shown if line.startswith("MODEL "))
            below = [line.split()[0] for line in iter(lambda: next(shown), "\n") if line.startswith("sie-fake/")][:3]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(60) == 0
    os.close(mine)


TOLD = {
    "timestamp": 110.0,
    "traffic": {"answered": 30, "stage_seconds": {"queue": 0.5, "total": 2.0}, "errors": {}},
    "models": [
        {"name": "b", "state": "loaded", "memory_bytes": 9e6, "queue_depth": 1, "last_used_at": 100.0},
        {"name": "a", "state": "loaded", "memory_bytes": 5e6, "queue_depth": 7, "last_used_at": 109.0},
        {"name": "c", "state": "available", "memory_bytes": 0, "queue_depth": 0},
    ],
}
BEFORE = {"timestamp": 100.0, "traffic": {"answered": 10, "stage_seconds": {"queue": 0.1, "total": 1.0}}}


@pytest.mark.parametrize(("sort", "first"), [("memory", "b"), ("queue", "a"), ("used", "a"), ("name", "a")])
def test_rates_are_of_late_and_models_in_the_chosen_order(sort, first):
    lines = picture(BEFORE, TOLD, sort)
    assert lines[0] == "2.0 requests/s, 30 since the start"
    assert lines[1] == "mean of each stage: queue 20.0 ms, total 50.0 ms"
    models = [line.split() for line in lines[4:]]
    assert [model[0] for model in models] == [first, *({"a", "b"} - {first})]


def test_the_progress_of_a_fetch_is_shown() -> None:
    model = {"name": "org/m", "state": "loading", "notes": {"fetch": "3 of 9 MB fetched"}}
    row = {field: model.get(field) for field in FIELDS}  # as the command keeps them
    assert "loading: 3 of 9 MB fetched" in "\n".join(table([row], 0.0))

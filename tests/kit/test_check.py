"""`sie plugins check`: a plugin that hangs or ends the process fails the check that it did so in."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

from click.testing import CliRunner, Result

from sie_core.cli import main

PLUGIN = """
import os, threading
from sie_core.contracts import OutputDtype
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.dtype/1",)


def ends(rows):
    print("ends")
    os._exit(3)


def hangs(rows):
    threading.Event().wait()


@hookimpl
def sie_output_dtypes():
    fine = OutputDtype("fine", "t", lambda rows: rows)
    return [OutputDtype("ends", "t", ends), OutputDtype("hangs", "t", hangs), fine]
"""


LIMIT_S = 10
"""Seconds that a check may take here: the sound one takes none, on a busy machine."""


def wheel(folder: Path) -> Path:
    """Write a wheel by hand: a module and its metadata."""
    file = folder / "sie_bad-0.1.0-py3-none-any.whl"
    with ZipFile(file, "w") as archive:
        archive.writestr("sie_bad.py", PLUGIN)
        archive.writestr("sie_bad-0.1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sie-bad\nVersion: 0.1.0\n")
        archive.writestr("sie_bad-0.1.0.dist-info/entry_points.txt", "[sie]\nbad = sie_bad\n")
    return file


def check(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["plugins", "check", *map(str, arguments)])


def test_a_sound_distribution_ends_with_zero() -> None:
    done = check("sie-core", "--only", "memory-manager/a-wait-is-bounded")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "1 passed, 0 skipped, 0 failed"


def test_a_check_that_hangs_or_ends_the_process_fails_and_the_next_ones_run(tmp_path: Path) -> None:
    only = ("--only", "output-dtype/each-row-is-cast-alone")
    done = check(wheel(tmp_path), "--limit", LIMIT_S, "--json", *only)
    assert done.exit_code == 1, done.output
    found = {each["part"]: each for each in json.loads(done.output)}
    assert len(found) == 3
    ends, hangs = found["output dtype ends"], found["output dtype hangs"]
    assert ends["state"] == "failed"
    assert ends["cause"].startswith("it ended the process with exit code 3; stderr ends with:")
    assert (hangs["state"], hangs["cause"]) == ("failed", f"it did not end within {LIMIT_S} s")
    assert found["output dtype fine"]["state"] == "passed"


def test_what_cannot_be_checked_ends_with_two(tmp_path: Path) -> None:
    (tmp_path / "broken.whl").write_bytes(b"no zip")
    for what, told in (
        ("sie-nobody", "no plugin of a distribution 'sie-nobody' is installed"),
        (tmp_path, "has no pyproject.toml that can be read"),
        (tmp_path / "broken.whl", "is no wheel that can be read"),
    ):
        done = check(what)
        assert done.exit_code == 2, done.output
        assert told in done.output
    done = check("sie-core", "--only", "nothing")
    assert done.exit_code == 2
    assert "no check of sie-core has one of the ids nothing" in done.output

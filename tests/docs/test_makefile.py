"""`make serve` hides the fakes of the tests from who serves, and says what to type in a second terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("given", "blocked"), [(None, "fake"), ("", ""), ("cpu", "cpu")])
def test_serve_blocks_the_fakes_unless_it_is_told_otherwise(tmp_path, given, blocked):
    """The Makefile's own rule runs, over a `sie` that says what it was given."""
    sie = tmp_path / "bin/sie"
    sie.parent.mkdir()
    sie.write_text('#!/bin/sh\necho "blocked=$SIE_PLUGINS_BLOCKED $*"\n')
    sie.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name != "SIE_PLUGINS_BLOCKED"}
    env |= {} if given is None else {"SIE_PLUGINS_BLOCKED": given}
    built = "-o", f"{tmp_path}/.kernels"  # what it is built of is taken for up to date
    command = ["make", "-s", *built, "serve", f"SERVING={tmp_path}", "ARGS=--port 9"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=250)
    told = f"In another terminal, first:  . {tmp_path}/bin/activate\nblocked={blocked} serve --port 9\n"
    assert done.stdout == told, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("given", "environment"), [((), ".light"), (("BUNDLE=default",), ".venv")])
def test_a_bundle_names_the_environment_that_serves_it(given, environment):
    command = ["make", "-n", "--no-print-directory", "-o", f"{environment}/.kernels", "serve", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.stdout.splitlines()[-1].strip() == f"{environment}/bin/sie serve", done.stdout + done.stderr
    assert "pip" not in done.stdout

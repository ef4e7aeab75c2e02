"""What a user does from outside: install with pip, run the command `sie`, start a server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

DATA = Path(__file__).parent / "data"
SIE = Path(sys.executable).with_name("sie")
QUICK = (sys.executable, Path(__file__).with_name("quick.py"))
"""The command with short limits."""


def pip(*arguments: object) -> None:
    """Run pip without a network."""
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--no-deps", "--no-index", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def environment(site: Path | None = None, **variables: str) -> dict[str, str]:
    """Make the environment of a user's shell: no SIE setting of the developer's, `site` on the path."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SIE_")}
    path = {"PYTHONPATH": str(site)} if site is not None else {}
    return {**inherited, **path, "OMP_NUM_THREADS": "1", **variables}


def install_beside(project: Path) -> None:
    """Install a project as an editable install does: its metadata beside its package."""
    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    info = project / f"{stated['name'].replace('-', '_')}-{stated['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {stated['name']}\nVersion: {stated['version']}\n")
    named = "\n".join(f"{name} = {module}" for name, module in stated["entry-points"]["sie"].items())
    (info / "entry_points.txt").write_text(f"[sie]\n{named}\n")


def run(command: list[object], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in `folder`."""
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=variables, capture_output=True, text=True, timeout=300
    )


@contextmanager
def server(
    arguments: list[str],
    folder: Path,
    variables: dict[str, str],
    sie: Sequence[object] = (SIE,),
    command: str = "serve",
) -> Iterator[str]:
    """Run `sie serve`, or another command that serves, on a free port until the block ends; gives its URL."""
    log = folder / "server.log"
    started = [*map(str, sie), command, "--port", "0", *arguments]
    with log.open("w") as errors:
        process = subprocess.Popen(started, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    stop = threading.Timer(100, process.kill)
    stop.start()
    try:
        told = next((line for line in process.stdout if "serves on" in line), None)
        assert told is not None, f"the server did not start:\n{log.read_text()}"
        yield told.split()[-1]
    finally:
        stop.cancel()
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.stdout.close()

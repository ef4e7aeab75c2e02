"""Finds and runs the programs that the commands stand on: uv, which solves, and pip, which builds and downloads."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sie_bundle.errors import ToolMissing

LONGEST_S = 1800.0
"""How long a program may take: builds of kernels and downloads of gigabytes included."""


def uv() -> list[str]:
    """Return the command that starts uv: the one on PATH, or that of this environment.

    Raises:
        ToolMissing: There is none.
    """
    return _tool("uv", "it solves the versions of a bundle: install it with `pip install uv`")


def pip() -> list[str]:
    """Return the command that starts pip: that of this environment, so that wheels are built for its Python.

    Raises:
        ToolMissing: There is none.
    """
    if importlib.util.find_spec("pip") is None:
        raise ToolMissing(f"pip is not in the environment of {sys.executable}: install it with `ensurepip`")
    return [sys.executable, "-m", "pip"]


def run(
    command: Sequence[str],
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    without: Collection[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what it wrote; a status other than 0 is the caller's to judge.

    Args:
        command: The program and its arguments.
        folder: Where it runs; None means here.
        variables: Of its environment, on top of those of this process.
        without: Variables that are kept from it.
    """
    return subprocess.run(
        command,
        cwd=folder,
        env={name: value for name, value in {**os.environ, **(variables or {})}.items() if name not in without},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
        stdin=subprocess.DEVNULL,
    )


def _tool(name: str, purpose: str) -> list[str]:
    if found := shutil.which(name):
        return [found]
    if importlib.util.find_spec(name) is not None:
        return [sys.executable, "-m", name]
    raise ToolMissing(f"{name} is neither on PATH nor in the environment of {sys.executable}; {purpose}")

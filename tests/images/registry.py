"""Whether a registry of packages answers: what is locked against it is skipped, visibly, where none does."""

from __future__ import annotations

import subprocess
from functools import cache

import pytest
from sie_bundle.errors import ToolMissing
from sie_bundle.tools import uv


@cache
def lacking() -> str | None:
    """Say why nothing can be locked against a registry here; None where it can."""
    try:
        command = [*uv(), "pip", "compile", "-", "--quiet", "--no-cache"]
    except ToolMissing as error:
        return str(error)
    try:
        done = subprocess.run(command, input="packaging", capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return "no registry answers within a minute"
    return f"no registry answers: {' '.join(done.stderr.split())[:200]}" if done.returncode else None


@pytest.fixture(scope="session")
def registry() -> None:
    """A registry that answers; else a skip that says what is missing."""
    if missing := lacking():
        pytest.skip(missing)

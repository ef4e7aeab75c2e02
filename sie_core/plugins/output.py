"""Keeps stdout for a command's own output: what plugins print goes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

STDOUT, STDERR = 1, 2
"""The file descriptors of POSIX."""


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what Python, C libraries and child processes write to stdout to stderr until the block ends."""
    with redirect_stdout(sys.stderr), _descriptor_to_stderr():
        yield


@contextmanager
def _descriptor_to_stderr() -> Iterator[None]:
    try:
        sys.stdout.flush()
        kept = os.dup(STDOUT)
    except (OSError, ValueError):  # the process has no stdout
        yield
        return
    try:
        os.dup2(STDERR, STDOUT)
        yield
    finally:
        os.dup2(kept, STDOUT)
        os.close(kept)

"""Reads files that others put into a folder: regular ones alone, up to a size.

A device has no end, a pipe may never answer, and parsing what is huge keeps the server from its clients.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnfitFile(Exception):
    """What a path leads to is not to be read; the message says why, and names no path."""


def read_regular(file: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes; a link to one is followed.

    Raises:
        UnfitFile: It is something else, or larger.
        OSError: It cannot be read.
    """
    with open(file, "rb", buffering=0, opener=_open) as stream:
        content = stream.read(most + 1) or b""
        size = max(os.fstat(stream.fileno()).st_size, len(content))
    if size > most:
        raise UnfitFile(f"{size} bytes are more than the {most} allowed")
    return content


def _open(path: str, flags: int) -> int:
    """Open a file without waiting for whoever writes into a pipe; refuse what is no regular one."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnfitFile("it is no regular file")
    return handle

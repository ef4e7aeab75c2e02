"""Reads files of folders that others may write to: only regular files, up to a size.

A device has no end, reading a pipe may block for ever, and parsing a huge file would delay the server's clients.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnfitFile(Exception):
    """A path leads to something that must not be read; the message says why, without the path."""


def read_regular(file: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes; a link to one is followed.

    Raises:
        UnfitFile: The path leads to something else, or the file is larger.
        OSError: It cannot be read.
    """
    with open(file, "rb", buffering=0, opener=_open) as stream:
        content = stream.read(most + 1) or b""
        size = max(os.fstat(stream.fileno()).st_size, len(content))
    if size > most:
        raise UnfitFile(f"{size} bytes are more than the {most} allowed")
    return content


def _open(path: str, flags: int) -> int:
    """Open a regular file; refuse anything else, without waiting for the writer of a pipe."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnfitFile("it is no regular file")
    return handle

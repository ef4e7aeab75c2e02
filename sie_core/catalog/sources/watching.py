"""Notices that the models folder has changed. It must not know what its files say, or who wants to know."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from sie_core.cache.formats import describes

Stamp = frozenset[tuple[str, int, int, int]]
"""What tells one state of a folder from another: path, inode, size and time of change of each file that counts."""

PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.ESTALE})
"""Errors of a read that say nothing of the file or folder."""


def stamp_of(folder: Path) -> Stamp:
    """Look at every config in `folder`, and at what describes the folders of weights one and two levels below it.

    Links are followed, so that a mounted ConfigMap counts, whose link is turned to a new folder. A file that vanishes
    meanwhile is passed over: the next look will differ.

    Raises:
        OSError: `folder` is not there or cannot be read.
    """
    return frozenset(_files(folder))


def _files(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    for entry in _listed(folder):
        if entry.name.endswith((".yaml", ".yml")):
            yield from _seen(entry)
        elif _is_folder(entry) and not entry.name.startswith("."):
            for below in _entries(Path(entry.path)):
                if describes(below.name):
                    yield from _seen(below)
                elif _is_folder(below):
                    yield from (
                        seen for each in _entries(Path(below.path)) if describes(each.name) for seen in _seen(each)
                    )


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _entries(below: Path) -> list[os.DirEntry[str]]:
    try:
        return _listed(below)
    except OSError as error:
        if error.errno in PASSING:
            raise
        return []


def _seen(entry: os.DirEntry[str]) -> Iterator[tuple[str, int, int, int]]:
    try:
        status = entry.stat()
    except OSError:
        return
    yield entry.path, status.st_ino, status.st_size, status.st_mtime_ns


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or a share that is gone
        return False

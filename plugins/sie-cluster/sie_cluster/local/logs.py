"""Bounds the logs of a folder: one that is large moves to a second file, in place of what was there."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 16 << 20
"""Of a log before it is moved; a program has about twice as much on disk."""
BEFORE = ".1"
"""What follows the name of a log in that of the file before it."""

log = logging.getLogger(__name__)


def rotate_logs(folder: Path) -> None:
    """Move what large logs hold, where programs write on at their ends.

    A file is copied and emptied, as programs keep it open: what they write in between is lost. Where the disk has no
    room for the copy, the log is emptied all the same.
    """
    for file in folder.glob("*.log"):
        if file.stat().st_size <= MOST_BYTES:
            continue
        before = file.with_name(file.name + BEFORE)
        try:
            shutil.copyfile(file, before)
        except OSError as error:
            log.warning("%s is emptied, as it cannot be kept in %s: %s", file, before.name, error)
            with suppress(OSError):
                before.unlink()
        os.truncate(file, 0)

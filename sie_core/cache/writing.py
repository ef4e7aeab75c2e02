"""Writes files that others may read at any time: under another name first, then renamed. It knows no cache."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def beside(file: Path) -> Path:
    """Name a file next to `file` that nobody else uses and that no reader takes for whole."""
    return file.with_name(f"{file.name}.{uuid.uuid4().hex[:8]}.incomplete")


def write_whole(file: Path, content: bytes) -> None:
    """Write a small file so that a reader finds what was there before or all of this.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    new = beside(file)
    try:
        new.write_bytes(content)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def link_whole(link: Path, target: Path) -> None:
    """Make `link` a relative link to `target`, in place of what was there.

    Raises:
        OSError: It cannot be made; nothing is left behind.
    """
    link.parent.mkdir(parents=True, exist_ok=True)
    new = beside(link)
    try:
        new.symlink_to(os.path.relpath(target, link.parent))
        new.replace(link)
    finally:
        new.unlink(missing_ok=True)

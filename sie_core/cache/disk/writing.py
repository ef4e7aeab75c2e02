"""Writes files atomically: under another name first, then renamed. Readers may open them at any time."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def beside(file: Path) -> Path:
    """Return a unique name next to `file` that readers ignore."""
    return file.with_name(f"{file.name}.{uuid.uuid4().hex[:8]}.incomplete")


def write_whole(file: Path, content: bytes) -> None:
    """Write a small file atomically: a reader finds the old contents or all of the new.

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
    """Make `link` a relative link to `target`, atomically replacing what was there.

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

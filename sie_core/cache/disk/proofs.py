"""Checks that the files of a snapshot are what their publisher wrote, by size and hash. Each file is hashed once.

The expected values come from the cache's own record of a snapshot, from the file list of the Hub's client, or from the
name of a blob, which is its hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sie_core.cache.disk import hub_layout
from sie_core.cache.disk.writing import write_whole
from sie_core.cache.formats import broken_safetensors
from sie_core.contracts.model.weights import SAFETENSORS

RECORDS = ".sie"
"""The folder of a repository that holds a record for each snapshot, named by its commit."""
THREADS = 4
"""Files of a snapshot that are hashed at once."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHA1 = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected size and hash of a file; None if unknown."""

    size: int | None = None
    digest: str | None = None
    """A SHA-256 (64 digits) or git's blob id (40 digits): the Hub lists one of the two for each file."""


@dataclass(slots=True)
class Record:
    """The expected files of a snapshot, and the state of each file when it was hashed."""

    files: Mapping[str, Expected] | None = None
    proved: Mapping[str, list[int]] | None = None


class Proofs:
    """Checks snapshots, and stores the results in the snapshot's record if it is writable."""

    def __init__(self) -> None:
        self._proved: dict[Path, list[int]] = {}
        self._lock = threading.Lock()

    def faults(self, folder: Path, weights: tuple[str, ...] = SAFETENSORS, *, again: bool = False) -> dict[str, str]:
        """Return the wrong files of a snapshot by name, each with its fault.

        Args:
            folder: The snapshot.
            weights: Patterns of the files with weights that a model is served from.
            again: Also hash files that are unchanged since their last hash.
        """
        record = read_record(folder)
        expected = expectations(folder, record, weights)
        proved = {} if again else dict(record.proved or {})
        with ThreadPoolExecutor(THREADS) as threads:
            found = threads.map(lambda name: (name, self._fault(folder, name, expected[name], proved)), expected)
        if proved != (record.proved or {}):
            record.proved = proved
            write_record(folder, record, missing_ok=True)
        return {name: fault for name, fault in found if fault is not None}

    def _fault(self, folder: Path, name: str, expected: Expected, proved: dict[str, list[int]]) -> str | None:
        file = folder / name
        try:
            state = state_of(file)
            if expected.size is not None and state[0] != expected.size:
                return f"has {state[0]} bytes, {expected.size} are expected"
            if expected.digest is None:
                return broken_safetensors(file) if file.suffix == ".safetensors" else None
            with self._lock:
                known = proved.get(name) or self._proved.get(file)
            if known != state:
                found = digest(file, like=expected.digest)
                flush(file)
                if found != expected.digest:
                    return f"has the hash {found}, expected is {expected.digest}"
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        with self._lock:
            proved[name] = self._proved[file] = state
        return None


def expectations(
    folder: Path, record: Record | None = None, weights: tuple[str, ...] = SAFETENSORS
) -> dict[str, Expected]:
    """Return the expected files of a snapshot: those a model is served from, and the listed ones."""
    record = record or read_record(folder)
    listed = record.files or _listed(folder)
    there = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir())
    names = sorted({*listed, *(name for name in there if hub_layout.wanted(name, weights))})
    return {name: _expected(listed.get(name), folder / name) for name in names}


def digest(file: Path, like: str = "0" * 64) -> str:
    """Hash a file the way `like` was made: SHA-256, or git's id of its contents.

    Raises:
        OSError: It cannot be read.
    """
    with file.open("rb") as stream:
        if len(like) == 64:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        content = stream.read()
    # A mirror may name small files by their plain SHA-1.
    plain = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    return plain if plain == like else hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def flush(file: Path) -> None:
    """Write a file through to the disk: after a power cut its time and size may be there without its contents."""
    with contextlib.suppress(OSError), file.open("rb") as stream:
        os.fsync(stream.fileno())


def read_record(folder: Path) -> Record:
    """Read the record of a snapshot; an empty one if it is missing or unreadable."""
    try:
        held = json.loads(_record_file(folder).read_bytes())
        files = {name: Expected(*each) for name, each in held["files"].items()} if held["files"] else None
        return Record(files, dict(held["proved"] or {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Record()


def write_record(folder: Path, record: Record, *, missing_ok: bool = False) -> None:
    """Write the record of a snapshot.

    Args:
        folder: The snapshot.
        record: The new record.
        missing_ok: Whether to ignore a folder that cannot be written to.

    Raises:
        OSError: It cannot be written.
    """
    files = {name: [each.size, each.digest] for name, each in (record.files or {}).items()}
    held = {"format": 1, "files": files, "proved": record.proved or {}}
    try:
        write_whole(_record_file(folder), json.dumps(held).encode())
    except OSError:
        if not missing_ok:
            raise


def _record_file(folder: Path) -> Path:
    return folder.parent.parent / RECORDS / f"{folder.name}.json"


def _listed(folder: Path) -> dict[str, Expected]:
    """Read the list of a commit's files by the Hub's client."""
    listed: dict[str, Expected] = {}
    for name, entry in hub_layout.recorded(folder).items():
        if hub_layout.wanted(name) and isinstance(entry, dict):
            size, sha256, git = (entry.get(each) for each in ("size", "lfs_sha256", "blob_id"))
            found = known_digest(sha256) or known_digest(git)
            if found is not None:
                listed[name] = Expected(size if isinstance(size, int) else None, found)
    return listed


def _expected(listed: Expected | None, file: Path) -> Expected:
    """Return the listed hash, else the one in the name of the blob that the file links to."""
    if listed is not None and listed.digest is not None:
        return listed
    by_blob = known_digest(file.readlink().name) if file.is_symlink() else None
    return Expected(None if listed is None else listed.size, by_blob)


def known_digest(value: Any) -> str | None:
    """Return a digest that can be checked; None for anything else."""
    return value if isinstance(value, str) and (_SHA256.fullmatch(value) or _SHA1.fullmatch(value)) else None


def state_of(file: Path) -> list[int]:
    """Return numbers that change when a file is changed: the last of them (ctime) cannot be set by programs."""
    state = file.stat()
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns]

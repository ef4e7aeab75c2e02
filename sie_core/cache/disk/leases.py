"""Locks on a shared cache folder: for using, pulling and removing repositories. Processes on any machine that share the
folder see each other's locks, and the locks of a process that dies are released.

Lock files are never removed: otherwise two processes could hold locks on two files of one name.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from sie_core.contracts import ModelLoadError

if sys.platform != "win32":
    import fcntl

LOCKS = Path(".locks", "sie")
"""Folder of the lock files, below the cache. The Hub's client keeps its own locks in `.locks` too."""
PULL_WAIT_S = 1800.0
"""How long a pull waits for another process's pull of the same repository."""
_POLL_S = 0.05
"""Seconds between two looks whether another process's pull has ended."""


class Lease:
    """Marks a repository as in use, until `release` or until this object is freed."""

    def __init__(self, descriptor: int) -> None:
        self._release = weakref.finalize(self, _let_go, descriptor)

    def release(self) -> None:
        """Release it; the repository counts as last used now. A second call does nothing."""
        self._release()


class Locks:
    """The locks of one cache folder."""

    def __init__(self, cache: Path) -> None:
        self.folder = cache / LOCKS

    def share(self, name: str) -> Lease | None:
        """Take a shared lock on `name`; None if the folder cannot have locks.

        Such a folder cannot be written to, or its file system has no locks; nothing is removed there.
        """
        descriptor = self._open(f"{name}.lease")
        if descriptor is None:
            return None
        if not _lock(descriptor, shared=True, wait=True):
            os.close(descriptor)
            return None
        _touch(descriptor)
        return Lease(descriptor)

    @contextlib.contextmanager
    def unused(self, name: str) -> Iterator[bool]:
        """Check whether `name` is unused, and keep it so during the block. Unknown counts as used."""
        never = self.last_used(name) is None
        descriptor = self._open(f"{name}.lease")
        if descriptor is None:
            yield False
            return
        try:
            if never:
                _touch(descriptor, 0.0)
            yield _lock(descriptor, shared=False, wait=False)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def alone(self, name: str, wait_s: float = PULL_WAIT_S) -> Iterator[None]:
        """Hold an exclusive lock on `name` during the block.

        Raises:
            OSError: The folder cannot be written to.
            ModelLoadError: `TIMEOUT`: others have held the lock for `wait_s` seconds.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            until = time.monotonic() + wait_s
            while not _lock(descriptor, shared=False, wait=False, unknown=True):
                if time.monotonic() >= until:
                    raise ModelLoadError("TIMEOUT", f"another process has been pulling it for {wait_s:g} s")
                time.sleep(_POLL_S)
            yield
        finally:
            os.close(descriptor)

    def last_used(self, name: str) -> float | None:
        """Return when `name` was last used, in seconds since 1970; None if never."""
        try:
            return (self.folder / f"{name}.lease").stat().st_mtime
        except OSError:
            return None

    def _open(self, file: str) -> int | None:
        """Open a lock file; create it if needed; read-only if it cannot be written."""
        if sys.platform == "win32":
            return None
        path = self.folder / file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            with contextlib.suppress(OSError):
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return None


def _lock(descriptor: int, *, shared: bool, wait: bool, unknown: bool = False) -> bool:
    """Lock an open file; False if another process holds the lock, `unknown` if the file system has no locks."""
    if sys.platform == "win32":
        return unknown
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        return False
    except OSError:
        return unknown
    return True


def _touch(descriptor: int, at: float | None = None) -> None:
    with contextlib.suppress(OSError):
        os.utime(descriptor, None if at is None else (at, at))


def _let_go(descriptor: int) -> None:
    _touch(descriptor)
    os.close(descriptor)

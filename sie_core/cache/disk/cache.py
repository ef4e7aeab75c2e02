"""The weight cache on a local disk: its content, its free space, and the choice of repositories to remove.

Several processes share the folder. The longest unused repository is removed first; repositories in use stay. A removal
renames a repository before it unlinks the files: open files stay readable, and no process finds half a repository.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sie_core.cache.disk import hub_layout
from sie_core.cache.disk.leases import PULL_WAIT_S, Lease, Locks
from sie_core.cache.disk.proofs import RECORDS, Proofs
from sie_core.cache.disk.writing import write_whole
from sie_core.contracts import ModelLoadError
from sie_core.settings import Settings

log = logging.getLogger(__name__)

STORED = "stored"
"""The file that marks a repository as SIE's own: it was not in the cache before SIE pulled it."""
PULLS_AT_ONCE = 4
"""Pulls of one process from one place; more would only share the bandwidth."""
ABANDONED_S = 3600.0
"""Age from which a partial download counts as abandoned."""
KEPT_S = 14 * 86400.0
"""Age from which a partial download of SIE is removed: its branch has likely moved by then."""


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """Bound on the size of the cache; None for no limit."""

    percent: float | None = None
    """The share of the disk that may be in use, by anything."""
    max_bytes: int | None = None
    """Bytes of the repositories that the cache may remove."""


@dataclass(frozen=True, slots=True)
class CachedRepository:
    """One repository of the cache."""

    repo_id: str
    size: int
    """Bytes on the disk."""
    last_used: float
    """Seconds since 1970."""
    removable: bool
    """Whether the cache may remove it once no process uses it."""
    snapshots: tuple[Path, ...]


class DiskCache:
    """A folder in the Hub's cache layout, and its locks.

    Args:
        folder: The cache; it need not exist.
        limits: How full it may get; None never removes anything.
        dedicated: Whether everything in it may be removed, not only repositories stored by SIE.
    """

    def __init__(self, folder: Path, limits: DiskLimits | None = None, *, dedicated: bool = False) -> None:
        self.folder = folder
        self.limits = limits
        self.dedicated = dedicated
        self.locks = Locks(folder)
        self.proofs = Proofs()
        self._pulls = threading.BoundedSemaphore(PULLS_AT_ONCE)

    def has(self, repo_id: str) -> bool:
        """Whether the cache has anything of a repository."""
        return os.path.isdir(hub_layout.repo_folder(self.folder, repo_id))  # noqa: PTH112 - Path raises for long names

    def use(self, repo_id: str) -> Lease | None:
        """Keep a repository from being removed until the lease is released."""
        return self.locks.share(_name(repo_id)) if self.folder.is_dir() else None

    @contextlib.contextmanager
    def pulling(self, repo_id: str, wait_s: float = PULL_WAIT_S) -> Iterator[None]:
        """Pull a repository: one process at a time, a few pulls at once. Removes leftovers of dead processes.

        Raises:
            ModelLoadError: `STORAGE` if the cache cannot be written to; `TIMEOUT`.
        """
        repo = hub_layout.repo_folder(self.folder, repo_id)
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self.locks.alone(_name(repo_id), wait_s))
                _remove_abandoned(repo, self.folder / ".locks" / repo.name)
            except OSError as error:
                raise storage_error(repo_id, error) from error
            if lease := self.use(repo_id):
                held.callback(lease.release)
            with self._pulls, self._marked(repo_id, repo):
                yield
        if self.limits is not None:
            # Concurrent pulls each saw the same free room; the last one to release finds none of theirs in use.
            self.shrink(self.limits, spared=repo_id)

    @contextlib.contextmanager
    def _marked(self, repo_id: str, repo: Path) -> Iterator[None]:
        """Mark a new repository as SIE's own, before the pull: a process may die during it."""
        if repo.exists():
            yield
            return
        try:
            write_whole(repo / RECORDS / STORED, b"")
        except OSError as error:
            raise storage_error(repo_id, error) from error
        try:
            yield
        finally:
            if [each.name for each in _entries(repo)] == [RECORDS]:
                shutil.rmtree(repo, ignore_errors=True)

    def make_room(self, repo_id: str, size: int) -> None:
        """Remove the longest unused repositories until `size` bytes more of `repo_id` are within the limits.

        Raises:
            ModelLoadError: `STORAGE`: they do not fit on the disk, or into the limit in bytes, even with every unused
                repository removed.
        """
        if self.limits is not None:
            self.shrink(self.limits, size)
            self._check_limit(repo_id, size, self.limits.max_bytes)
        free = shutil.disk_usage(_existing(self.folder)).free
        if size > free:
            raise ModelLoadError(
                "STORAGE",
                f"{repo_id} needs {megabytes(size)} and the disk of the local cache has {megabytes(free)} free: free "
                "some (`sie cache prune`), or set SIE_LOCAL_CACHE to a folder on a larger disk",
            )

    def _check_limit(self, repo_id: str, size: int, most: int | None) -> None:
        if most is None:
            return
        held = sum(each.size for each in self.repositories() if each.removable)
        if held + size > most:
            raise ModelLoadError(
                "STORAGE",
                f"{repo_id} needs {megabytes(size)}, the local cache may hold {megabytes(most)} and what is in use "
                f"there takes {megabytes(held)}: raise SIE_DISK_CACHE_MAX_BYTES, or unload models",
            )

    def shrink(self, limits: DiskLimits, size: int = 0, spared: str | None = None) -> list[CachedRepository]:
        """Remove the longest unused repositories but `spared` until the cache, with `size` bytes more, is in `limits`.

        Returns:
            The removed repositories.
        """
        removed: list[CachedRepository] = []
        if not self.folder.is_dir():
            return removed
        try:
            with self.locks.alone("evict"):
                self._empty_trash()
                entries = [each for each in self.repositories() if each.removable]
                held = sum(each.size for each in entries)
                for each in sorted(entries, key=lambda it: it.last_used):
                    if not self._over(limits, held + size, size):
                        break
                    if each.repo_id != spared and self._remove(each):
                        held -= each.size
                        removed.append(each)
        except OSError as error:
            log.warning("the local cache cannot be shrunk: %s", error.strerror)
        return removed

    def remove(self, repo_id: str) -> bool:
        """Remove a repository; False if some process uses it, or it cannot be removed."""
        found = next((each for each in self.repositories() if each.repo_id == repo_id), None)
        return found is not None and self._remove(found)

    def in_use(self, repo_id: str) -> bool:
        """Whether any process uses a repository now."""
        with self.locks.unused(_name(repo_id)) as unused:
            return not unused

    def repositories(self) -> list[CachedRepository]:
        """List the repositories in the cache."""
        return [self._describe(repo_id) for repo_id in hub_layout.repositories(self.folder)]

    def _describe(self, repo_id: str) -> CachedRepository:
        folder = hub_layout.repo_folder(self.folder, repo_id)
        snapshots = tuple(
            sorted(each for each in _entries(folder / "snapshots") if each.is_dir() and not each.name.startswith("."))
        )
        changed = max((_changed(each) for each in (folder / "refs", *snapshots)), default=0.0)
        used = self.locks.last_used(_name(repo_id)) or 0.0
        ours = self.dedicated or (folder / RECORDS / STORED).exists()
        return CachedRepository(repo_id, _size(folder), max(used, changed), ours, snapshots)

    def _over(self, limits: DiskLimits, held: int, size: int) -> bool:
        if limits.max_bytes is not None and held > limits.max_bytes:
            return True
        disk = shutil.disk_usage(self.folder)
        return limits.percent is not None and 100 * (disk.total - disk.free + size) > limits.percent * disk.total

    def _remove(self, each: CachedRepository) -> bool:
        """Rename a repository under a lock that keeps others from using it, then unlink its files."""
        away = self._trash / uuid.uuid4().hex
        with self.locks.unused(_name(each.repo_id)) as unused:
            if not unused:
                return False
            try:
                self._trash.mkdir(parents=True, exist_ok=True)
                hub_layout.repo_folder(self.folder, each.repo_id).rename(away)
            except OSError as error:
                log.warning("%s cannot be removed from the local cache: %s", each.repo_id, error.strerror)
                return False
        shutil.rmtree(away, ignore_errors=True)
        log.info("%s left the local cache: %s, the longest unused", each.repo_id, megabytes(each.size))
        return True

    @property
    def _trash(self) -> Path:
        return self.locks.folder / "trash"

    def _empty_trash(self) -> None:
        """Finish the removals of processes that died."""
        for each in _entries(self._trash):
            shutil.rmtree(each, ignore_errors=True)


def disk_cache(settings: Settings) -> DiskCache:
    """Make the cache of the settings."""
    limits = DiskLimits(settings.disk_pressure_threshold_percent, settings.disk_cache_max_bytes)
    return DiskCache(
        cache_folder(settings),
        limits if settings.disk_cache_enabled else None,
        dedicated=settings.local_cache is not None,
    )


def cache_folder(settings: Settings) -> Path:
    """Return the cache of the settings: `SIE_LOCAL_CACHE`, else the one the Hub client uses itself."""
    if settings.local_cache is not None:
        return settings.local_cache.expanduser()
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def storage_error(repo_id: str, error: OSError) -> ModelLoadError:
    """Make the error of a repository that the cache's disk did not take, with the remedy."""
    return ModelLoadError(
        "STORAGE",
        f"the local cache cannot take {repo_id}: {error.strerror or type(error).__name__}. Free some of its disk "
        "(`sie cache prune`), or set SIE_LOCAL_CACHE to a folder that can be written to",
    )


def megabytes(size: float) -> str:
    """Format a number of bytes for messages."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _name(repo_id: str) -> str:
    return hub_layout.repo_folder(Path(), repo_id).name


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(folder: Path) -> int:
    """Return the bytes of the files in a folder; links count as 0."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                state = Path(parent, name).lstat()
                total += 0 if stat.S_ISLNK(state.st_mode) else state.st_size
    return total


def _remove_abandoned(repo: Path, locks: Path) -> None:
    """Remove leftovers of dead processes' pulls, except resumable files and files that may still be written.

    The caller holds the lock of pulls, so only other clients of the Hub may write here, which lock each blob.

    Args:
        repo: The repository's folder.
        locks: Where the Hub's client keeps its locks of this repository.
    """
    for partial in (*repo.rglob("*.incomplete"), *repo.glob("snapshots/.*")):
        blob, own = partial.name.partition(".")[0], partial.name.endswith(hub_layout.PARTIAL)
        old = time.time() - _changed(partial) > (KEPT_S if own else ABANDONED_S)
        if not old and (own or partial.parent.name != "blobs" or _is_locked(locks / f"{blob}.lock")):
            continue
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def _is_locked(file: Path) -> bool:
    """Whether a process holds a lock of the Hub's client; True if there is no lock file to check."""
    if not file.is_file():
        return True
    from filelock import FileLock, Timeout  # only an unfinished pull needs it

    try:
        with FileLock(file, blocking=False):
            return False
    except (OSError, Timeout):
        return True

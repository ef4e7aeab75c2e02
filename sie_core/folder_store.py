"""A local folder as an object store: one file an object, whole at any time, replaced under conditions without locks.

A lock would be held by a process that is stopped, for as long as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from sie_core.contracts import ObjectStoreError, StoredObject, VersionedObject

STAGED = ".staged"
"""Where files are written before they get their name."""
LEFT_S = 3600.0
"""A staged file of this age was left by a process that ended."""
TRIES = 200
"""How often an object is tried to be replaced while others try too. Time would run while a process is stopped."""
_CHUNK = 8 * 2**20
"""Bytes of a file that are copied at a time."""
_FIRST_PAUSE_S = 0.001
"""Seconds that a second try to replace an object waits at most; each further one may wait twice as long."""
_LONGEST_PAUSE_S = 0.05
"""Seconds that any further try waits at most."""


class FolderStore:
    """A folder of one machine's file system. Its folders are readable by their owner alone.

    Names that begin with a dot are no objects. Conditional writes need hard links, and listings that show at once what
    another process did, which network file systems do not promise; everything else works there too.

    Args:
        folder: Made with the first write.
        durable: Whether an object must be on the disk when its write returns, to outlast a power cut.
    """

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.url = str(folder)
        self._folder, self._durable = folder, durable

    def read(self, key: str) -> bytes:
        """Return a file's content."""
        with self._typed(key):
            return self._file(key).read_bytes()

    def write(self, key: str, data: bytes) -> None:
        """Write a file; a reader finds the old or the new one, never a part."""
        with self._typed(key), self._staged(lambda staged: staged.write_bytes(data)) as staged:
            self._put(staged, key)

    def read_version(self, key: str) -> VersionedObject:
        """Return a file's content and its version, which is its hash."""
        data = self.read(key)
        return VersionedObject(data, _version(data))

    def create(self, key: str, data: bytes) -> str:
        """Write a file where there is none."""
        with self._typed(key), self._staged(lambda staged: staged.write_bytes(data)) as staged:
            file = self._file(key)
            self._make(file.parent)
            try:
                file.hardlink_to(staged)
            except FileExistsError:
                raise self._conflict(key) from None
            self._flush(file.parent)
        return _version(data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Write a file in place of a version of it.

        Who replaces a file announces it by a link, removes the links of others who do, looks at the version, and then
        renames its link, which fails where another has removed it. Of two that have seen the same version, one has
        announced itself before the other removed links: so one of them finds its link removed.
        """
        with self._typed(key), self._staged(lambda staged: staged.write_bytes(data)) as staged:
            pause = _FIRST_PAUSE_S
            for _ in range(TRIES):
                if self._replaced(staged, key, version):
                    return _version(data)
                time.sleep(pause * random.random())
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        raise ObjectStoreError("UNAVAILABLE", f"{self.url}: others have been replacing {key} all the time")

    def download(self, key: str, file: Path, size: int, progress: Callable[[int], None]) -> None:
        """Copy an object to a new file."""
        with self._typed(key):
            source = self._file(key).open("rb")
        with source, file.open("wb") as target:
            if os.fstat(source.fileno()).st_size != size:
                raise ObjectStoreError("NOT_FOUND", f"{self.url} has no {key} of {size} bytes")
            while chunk := source.read(_CHUNK):
                target.write(chunk)
                progress(len(chunk))

    def upload(self, key: str, file: Path) -> None:
        """Copy a file into the folder."""
        with file.open("rb"):
            pass  # What hinders this is the caller's file, and no failure of the store.
        with self._typed(key), self._staged(lambda staged: shutil.copyfile(file, staged)) as staged:
            self._put(staged, key)

    def size(self, key: str) -> int | None:
        """Return the bytes of a file, None where there is none."""
        try:
            with self._typed(key):
                found = self._file(key).stat()
                return found.st_size if stat.S_ISREG(found.st_mode) else None
        except ObjectStoreError as error:
            if error.failure == "NOT_FOUND":
                return None
            raise

    def list(self, prefix: str, *, below: bool = True) -> Iterator[StoredObject]:
        """List the files of a folder, and of the folders in it."""
        with self._typed(prefix):
            folders = [self._file(prefix) if prefix else self._folder]
        while folders:
            folder = folders.pop()
            with self._typed(prefix), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for entry in os.scandir(folder):
                    if entry.name.startswith("."):
                        continue
                    if not entry.is_dir():
                        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                            yield self._stored(entry)
                    elif below:
                        folders.append(Path(entry.path))

    def delete(self, key: str) -> None:
        """Remove a file, if it is there."""
        try:
            with self._typed(key):
                file = self._file(key)
                file.unlink()
                self._flush(file.parent)
        except ObjectStoreError as error:
            if error.failure != "NOT_FOUND":
                raise

    def _replaced(self, staged: Path, key: str, version: str) -> bool:
        """Try once; False where another process has removed the link."""
        file, kind = self._file(key), hashlib.sha256(key.encode()).hexdigest()
        mine = staged.with_name(f"{kind}.{uuid.uuid4().hex}")
        mine.hardlink_to(staged)
        try:
            for other in staged.parent.iterdir():
                if other.name.startswith(kind) and other != mine:
                    other.unlink(missing_ok=True)
            try:
                current = _version(file.read_bytes())
            except (FileNotFoundError, NotADirectoryError):
                raise self._conflict(key) from None
            if current != version:
                raise self._conflict(key)
            try:
                mine.replace(file)
            except FileNotFoundError:
                return False
        finally:
            mine.unlink(missing_ok=True)
        self._flush(file.parent)
        return True

    @contextlib.contextmanager
    def _staged(self, write: Callable[[Path], object]) -> Iterator[Path]:
        """Write a file beside the objects, and remove it afterwards unless it was renamed."""
        folder = self._folder / STAGED
        self._make(folder)
        staged = folder / uuid.uuid4().hex
        try:
            write(staged)
            self._flush(staged)
            _remove_left(folder, staged.stat().st_mtime)
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    def _put(self, staged: Path, key: str) -> None:
        file = self._file(key)
        self._make(file.parent)
        staged.replace(file)
        self._flush(file.parent)

    def _make(self, folder: Path) -> None:
        """Make a folder and those above it."""
        if not folder.is_dir():
            if folder.parent != folder:
                self._make(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            self._flush(folder.parent)

    def _flush(self, path: Path) -> None:
        """Write a file or a folder through to the disk."""
        if not self._durable or (sys.platform == "win32" and path.is_dir()):
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _file(self, key: str) -> Path:
        named = all(part and not part.startswith(".") for part in key.split("/"))
        if not named or "\\" in key or not key.isprintable():
            told = f"{self.url}: {key!r:.100} is no key: printable names joined by `/`, none of which begins with a dot"
            raise ObjectStoreError("DENIED", told)
        return self._folder / key

    def _stored(self, entry: os.DirEntry[str]) -> StoredObject:
        found = entry.stat()
        key = Path(entry.path).relative_to(self._folder).as_posix()
        return StoredObject(key, found.st_size, f"{found.st_mtime_ns:x}-{found.st_ino:x}")

    def _conflict(self, key: str) -> ObjectStoreError:
        return ObjectStoreError("CONFLICT", f"{self.url}: {key} was written by another meanwhile: read it again")

    @contextlib.contextmanager
    def _typed(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise ObjectStoreError("NOT_FOUND", f"{self.url} has no {key}") from error
        except PermissionError as error:
            told = f"{self.url}: {error.strerror}: its folders and files must be this user's"
            raise ObjectStoreError("DENIED", told) from error
        except OSError as error:
            raise ObjectStoreError("UNAVAILABLE", f"{self.url}: {error.strerror or error}") from error


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _remove_left(folder: Path, now: float) -> None:
    """Remove what processes that ended have left; `now` is by the file system's own clock."""
    for staged in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if now - staged.stat().st_mtime > LEFT_S:
                staged.unlink()

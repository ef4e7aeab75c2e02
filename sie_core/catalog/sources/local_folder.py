"""A folder of model configs on this machine, and the stamp that distinguishes its states."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sie_core.cache.formats import describes
from sie_core.catalog.configs.reading import ConfigError, read_config
from sie_core.catalog.sources.folder import ConfigFile, FolderUnreadable
from sie_core.catalog.sources.from_weights import folder_models, passed_over
from sie_core.contracts import ModelConfig
from sie_core.settings import SettingsError

LOOK_EVERY_S = 1.0
"""Seconds between two looks at a folder for changes."""
ABSENT = (FileNotFoundError, NotADirectoryError)
PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.ESTALE})
"""Transient errors of a read: they say nothing about the file or folder."""

Found = TypeVar("Found", bound=Collection[Any])
Stamp = frozenset[tuple[str, int, int, int]]
"""Path, inode, size and time of change of each file that counts."""


class LocalFolder:
    """A folder on this machine; a missing one that is not `needed` counts as empty.

    A folder that held files and then disappears or cannot be listed is unreadable, not empty: a lost permission, ticket
    or share must not remove every model. The same applies if it is empty and on another device than before: it is the
    mount point of an unmounted share.
    """

    look_every_s = LOOK_EVERY_S

    def __init__(self, folder: Path, *, needed: bool = False) -> None:
        self._folder = folder
        self._needed = needed
        self._device: int | None = None
        """The device of the folder when files were last found in it."""

    def stamp(self) -> Hashable:
        """Return the stamps of configs and of the files that describe folders of weights."""
        return self._find(stamp_of) or frozenset()

    def files(self) -> Sequence[ConfigFile]:
        """List the configs; `read` of one raises `FolderUnreadable` if a later read may work."""
        names = self._find(os.listdir)
        if names is None and self._needed:
            raise SettingsError(
                f"SIE_MODELS_DIR={self._folder}: no such folder. Name a local folder of model configs, or one in an "
                "object store (s3://bucket/prefix)."
            )
        files = [self._folder / name for name in sorted(names or ()) if name.endswith((".yaml", ".yml"))]
        return [ConfigFile(str(file), partial(_read, file)) for file in files]

    def weights(self) -> Iterator[ModelConfig]:
        """Find the folders of weights."""
        return folder_models(self._folder)

    def passed_over(self) -> Iterator[tuple[Path, str]]:
        """Find the folders that hold weights and are not served, each with the reason."""
        return passed_over(self._folder)

    def _find(self, look: Callable[[Path], Found]) -> Found | None:
        """Return what `look` finds in the folder; None if it is missing and held no files before."""
        try:
            found = look(self._folder)
            device = os.stat(f"{self._folder}/.").st_dev  # noqa: PTH116 - a Path drops the dot, which asks for search
        except OSError as error:
            nothing = ABSENT if self._needed else (*ABSENT, PermissionError)
            if self._device is None and isinstance(error, nothing):
                return None
            raise FolderUnreadable(f"the models folder cannot be read now: {error.strerror}") from error
        if found:
            self._device = device
        elif self._device not in (None, device):
            raise FolderUnreadable("the models folder is empty, and on another device than before: mount it again")
        return found


def _read(file: Path) -> ModelConfig:
    try:
        return read_config(file)
    except ConfigError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in PASSING:
            raise FolderUnreadable(f"SIE_MODELS_DIR: {file.name} cannot be read now: {cause.strerror}") from error
        raise


def stamp_of(folder: Path) -> Stamp:
    """Stamp every config in `folder`, and the files that describe folders of weights one and two levels below it.

    Links are followed, because Kubernetes updates a mounted ConfigMap by changing a link. A file that disappears in
    between is ignored: the next stamp will differ.

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

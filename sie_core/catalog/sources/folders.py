"""Folders of model configs: what the catalog asks of one, and the local kind.

It must not know what configs mean, nor who follows their changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sie_core.catalog.configs.reading import ConfigError, read_config
from sie_core.catalog.sources.from_weights import folder_models
from sie_core.catalog.sources.watching import PASSING, stamp_of
from sie_core.contracts import ModelConfig
from sie_core.settings import SettingsError

LOOK_EVERY_S = 1.0
ABSENT = (FileNotFoundError, NotADirectoryError)

Found = TypeVar("Found", bound=Collection[Any])


class FolderUnreadable(SettingsError):
    """A folder cannot be read now and may be later; the message is fit for a client."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One config of a folder."""

    source: str
    """Its path or URL."""
    read: Callable[[], ModelConfig]
    """Raises `ConfigError`."""


class ModelsFolder(Protocol):
    """A folder of configs. Its methods block and are called one after another, from any thread."""

    look_every_s: float
    """Seconds between two looks for changes."""

    def stamp(self) -> Hashable:
        """Return what differs where two states of the folder do.

        Raises:
            FolderUnreadable: It cannot be looked at now.
        """
        ...

    def files(self) -> Sequence[ConfigFile]:
        """List the configs by their names.

        Raises:
            FolderUnreadable: It cannot be read now.
            SettingsError: There is no such folder.
        """
        ...

    def weights(self) -> Iterator[ModelConfig]:
        """Find the folders of weights in it."""
        ...


class LocalFolder:
    """A folder on this machine; one that need not be there holds nothing.

    One that held something and cannot be looked at any more is unreadable, not empty: a permission, a ticket or a share
    that is gone must not remove every model. The same goes where it vanished whole, or is empty and on another device:
    then it is the place where a share was mounted.
    """

    look_every_s = LOOK_EVERY_S

    def __init__(self, folder: Path, *, needed: bool = False) -> None:
        self._folder = folder
        self._needed = needed
        self._device: int | None = None
        """The device it was on when something was last found in it."""

    def stamp(self) -> Hashable:
        """Look at configs and at what describes folders of weights."""
        return self._find(stamp_of) or frozenset()

    def files(self) -> Sequence[ConfigFile]:
        """List the configs; reading one raises `FolderUnreadable` too, where that may work later."""
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

    def _find(self, look: Callable[[Path], Found]) -> Found | None:
        """Return what a look at the folder finds; None where there is none, nor has been."""
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

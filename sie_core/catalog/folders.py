"""Folders of model configs: what the catalog asks of one, and the local kind.

It must not know what configs mean, nor who follows their changes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from sie_core.catalog.from_weights import folder_models
from sie_core.catalog.reading import ConfigError, read_config
from sie_core.catalog.watching import stamp_of
from sie_core.contracts import ModelConfig
from sie_core.settings import SettingsError

LOOK_EVERY_S = 1.0
PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.ESTALE})
"""Errors of a read that say nothing of the file."""


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
    """A folder on this machine; one that need not be there holds nothing."""

    look_every_s = LOOK_EVERY_S

    def __init__(self, folder: Path, *, needed: bool = False) -> None:
        self._folder = folder
        self._needed = needed

    def stamp(self) -> Hashable:
        """Look at configs and at what describes folders of weights."""
        return stamp_of(self._folder)

    def files(self) -> Sequence[ConfigFile]:
        """List the configs; reading one raises `FolderUnreadable` too, where that may work later."""
        if self._needed and not self._folder.is_dir():
            raise SettingsError(
                f"SIE_MODELS_DIR={self._folder}: no such folder. Name a local folder of model configs, or one in an "
                "object store (s3://bucket/prefix)."
            )
        files = sorted([*self._folder.glob("*.yaml"), *self._folder.glob("*.yml")])
        return [ConfigFile(str(file), partial(_read, file)) for file in files]

    def weights(self) -> Iterator[ModelConfig]:
        """Find the folders of weights."""
        return folder_models(self._folder)


def _read(file: Path) -> ModelConfig:
    try:
        return read_config(file)
    except ConfigError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in PASSING:
            raise FolderUnreadable(f"SIE_MODELS_DIR: {file.name} cannot be read now: {cause.strerror}") from error
        raise

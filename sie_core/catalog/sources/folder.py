"""A folder of model configs, on this machine or in an object store: the Protocol, and the values of its methods."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sie_core.contracts import ModelConfig
from sie_core.settings import SettingsError


class FolderUnreadable(SettingsError):
    """A folder cannot be read now, but perhaps later; the message is fit for a client."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One config of a folder."""

    source: str
    """Its path or URL."""
    read: Callable[[], ModelConfig]
    """Reads it, or raises `ConfigError`."""


class ModelsFolder(Protocol):
    """A folder of configs. Its methods block and are called one after another, from any thread."""

    look_every_s: float
    """Seconds between two looks for changes."""

    def stamp(self) -> Hashable:
        """Return a value that differs between any two states of the folder.

        Raises:
            FolderUnreadable: The folder cannot be listed now.
        """
        ...

    def files(self) -> Sequence[ConfigFile]:
        """List the configs by their names.

        Raises:
            FolderUnreadable: The folder cannot be read now.
            SettingsError: The folder does not exist.
        """
        ...

    def weights(self) -> Iterator[ModelConfig]:
        """Find the folders of weights in it."""
        ...

    def passed_over(self) -> Iterator[tuple[Path, str]]:
        """Find the folders that hold weights and are not served, each with the reason."""
        ...

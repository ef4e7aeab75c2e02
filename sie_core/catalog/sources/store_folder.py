"""A folder of model configs in an object store: it is listed at each look, and only changed configs are read."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from sie_core.catalog.configs.reading import LARGEST_CONFIG, ConfigError, config_of
from sie_core.catalog.sources.folder import ConfigFile, FolderUnreadable
from sie_core.contracts import ModelConfig, ObjectStore, ObjectStoreError, StoredObject

log = logging.getLogger(__name__)

READERS = 8
"""Configs that are read from a store at once."""


class StoreFolder:
    """The configs at the top of `store`.

    Args:
        store: The folder.
        look_every_s: Seconds between two looks for changes.
    """

    def __init__(self, store: ObjectStore, look_every_s: float) -> None:
        self.look_every_s = look_every_s
        self._store = store
        self._read: dict[StoredObject, ConfigFile] = {}

    def stamp(self) -> Hashable:
        """List the configs with their versions."""
        return frozenset(self._list())

    def files(self) -> Sequence[ConfigFile]:
        """Read the configs that are new or have another version than last time."""
        listed = sorted(self._list(), key=lambda each: each.key)
        if not listed:
            log.warning("%s holds no model config (*.yaml, *.yml)", self._store.url)
        fresh = [each for each in listed if each not in self._read]
        with self._readable(), ThreadPoolExecutor(READERS, thread_name_prefix="sie-configs") as readers:
            read = {**self._read, **dict(zip(fresh, readers.map(self._fetch, fresh), strict=True))}
        files = {each: file for each in listed if (file := read[each]) is not None}
        self._read = files
        return list(files.values())

    def weights(self) -> Iterator[ModelConfig]:
        """Return none: weights come through the weight tiers."""
        return iter(())

    def passed_over(self) -> Iterator[tuple[Path, str]]:
        """Return none, as above."""
        return iter(())

    def _list(self) -> list[StoredObject]:
        with self._readable():
            return [each for each in self._store.list("", below=False) if each.key.endswith((".yaml", ".yml"))]

    def _fetch(self, listed: StoredObject) -> ConfigFile | None:
        """Read one config; None if it has just been removed."""
        source = f"{self._store.url}/{listed.key}"
        try:
            if listed.size > LARGEST_CONFIG:
                return _refused(source, f"{listed.size} bytes are more than the {LARGEST_CONFIG} allowed")
            return ConfigFile(source, partial(config_of, self._store.read(listed.key), source=source, folder=None))
        except ObjectStoreError as error:
            if error.failure == "NOT_FOUND":
                return None
            if error.failure == "DENIED":
                return _refused(source, str(error))
            raise

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except ObjectStoreError as error:
            raise FolderUnreadable(f"SIE_MODELS_DIR: {error}") from error


def _refused(source: str, why: str) -> ConfigFile:
    def refuse() -> ModelConfig:
        raise ConfigError(f"{source}: cannot be read: {why}")

    return ConfigFile(source, refuse)

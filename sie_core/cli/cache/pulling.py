"""Finds the repositories that `sie cache pull` fetches for a config, and writes its progress line."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TextIO

from sie_core.cache.disk.cache import megabytes
from sie_core.catalog import choose_family, read_card
from sie_core.catalog.fetching import companions_of
from sie_core.contracts import Device, ModelConfig, ModelLoadError, ResolvedModel, WeightRequest
from sie_core.plugins import PluginSet

EVERY_S = {True: 0.1, False: 10.0}
"""Seconds between two words of progress, on a terminal and in a log."""


def loras_of(config: ModelConfig) -> list[ModelConfig]:
    """Name the weights of a model's declared LoRA adapters."""
    return [
        ModelConfig(each.name, hf_id=each.hf_id, hf_revision=each.hf_revision)
        for each in config.loras.values()
        if each.weights_path is None
    ]


def needed_beside(folder: Path, resolved: ResolvedModel, plugins: PluginSet) -> list[WeightRequest]:
    """List the repositories whose small files the weights in `folder` need; none if no family claims these."""
    try:
        card = read_card(folder)
        return companions_of(card, resolved, choose_family(plugins, resolved, card, Device("cpu")).family)
    except ModelLoadError:
        return []


class Progress:
    """Writes the progress of a download: over one line on a terminal, a line at a time elsewhere."""

    def __init__(self, name: str, output: TextIO) -> None:
        self._name = name
        self._output = output
        self._terminal = output.isatty()
        self._told = time.monotonic()
        self._open = False
        self._lock = threading.Lock()

    def __call__(self, done: int, size: int) -> None:
        """Report `done` bytes of `size`, from any thread."""
        with self._lock:
            now = time.monotonic()
            if now - self._told < EVERY_S[self._terminal] and done < size:
                return
            self._told, self._open = now, self._terminal
            share = f" ({100 * done // size} %)" if size else ""
            line = f"{self._name}: {megabytes(done)} of {megabytes(size)}{share}"
            self._output.write(f"\r\033[K{line}" if self._terminal else f"{line}\n")
            self._output.flush()

    def end(self) -> None:
        """End the line."""
        with self._lock:
            if self._open:
                self._output.write("\n")
                self._open = False

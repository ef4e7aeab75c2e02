"""Asks a plugin's memory manager, and replaces invalid answers by doing nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

from sie_core.contracts import DeviceMemory, HeldModel, MemoryLimits, MemoryManager, Room
from sie_core.plugins import PluginSet
from sie_core.plugins.interfaces.signatures import require
from sie_core.plugins.selection import make_chosen
from sie_core.settings import Settings

HOOK = "sie_memory_managers"
DEFAULT: str = Settings.model_fields["memory_manager"].default


def make_manager(plugins: PluginSet, name: str, limits: MemoryLimits) -> CheckedManager:
    """Make the memory manager that `SIE_MEMORY_MANAGER` chose, or the default one if it cannot be made.

    Raises:
        PluginError: The name is unknown, or the default one cannot be made.
    """

    def make(name: str) -> MemoryManager:
        manager = plugins.memory_manager(name)(limits)
        require(manager, MemoryManager)
        return manager

    default = DEFAULT if DEFAULT in plugins.memory_managers else name
    manager, _ = make_chosen(plugins, HOOK, "SIE_MEMORY_MANAGER", name, default, make)
    return CheckedManager(manager, lambda problem, error: plugins.faulty(HOOK, name, problem, error))


class CheckedManager:
    """Wraps a `MemoryManager` so that it never raises; if the inner one fails, nothing is unloaded.

    Args:
        manager: The wrapped manager.
        report: Called with a description of each fault, and the exception if one was raised.
    """

    def __init__(self, manager: MemoryManager, report: Callable[[str, Exception | None], object]) -> None:
        self._manager = manager
        self._report = report

    def make_room(self, wanted: int, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Room:
        """Choose what to do before a load; if the manager fails, load."""
        try:
            room = self._manager.make_room(wanted, memory, models, now)
            if not isinstance(room, Room):
                raise TypeError(f"make_room returned {room!r:.100}, not a Room")
            if room.wait_s is not None and not (isfinite(room.wait_s) and room.wait_s >= 0):
                raise ValueError(f"make_room has a load wait {room.wait_s} s")
            self._known(() if room.evict is None else (room.evict,), models)
        except Exception as error:
            self._failed(error)
            return Room()
        return room

    def relieve(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Sequence[str]:
        """Choose what to unload now."""
        try:
            return self._known(tuple(self._manager.relieve(memory, models, now)), models)
        except Exception as error:
            self._failed(error)
            return ()

    def out_of_memory(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> str | None:
        """Choose what to unload after a failed allocation; None for none."""
        try:
            chosen = self._manager.out_of_memory(memory, models, now)
            self._known(() if chosen is None else (chosen,), models)
        except Exception as error:
            self._failed(error)
            return None
        return chosen

    def _known(self, chosen: Sequence[str], models: Sequence[HeldModel]) -> Sequence[str]:
        for each in chosen:
            if all(model.id != each for model in models):
                raise ValueError(f"{each!r:.100} is to be unloaded, which is none of the models it was given")
        return chosen

    def _failed(self, error: Exception) -> None:
        self._report(f"raised or answered what it must not ({type(error).__name__})", error)

"""Every wait and limit in time of the engine, with its reason, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. Operators cannot set these; tests pass shorter ones."""

    stall_s: float = 60.0
    """A batch counts as hung beyond this and ten times its prediction."""
    stage_s: float = 300.0
    """A stage counts as hung when each of its threads has been at one request for this long. Nobody predicts how long
    preparing takes, and other processes may keep the cores busy."""
    drain_s: float = 30.0
    """How long a load waits until nobody uses a model it evicts; then another is chosen."""
    room_s: float = 60.0
    """How long a load waits for room at all."""
    load_s: float = 600.0
    """How long a load may work on the device before it counts as hung: nothing else can be loaded meanwhile."""
    measure_s: float = 10.0
    """How long measuring the device, or freeing its caches, may take: a driver that hangs must not hold up loads."""
    monitor_s: float = 1.0
    """How often memory and idle models are looked at with no load waiting."""
    collect_again_s: float = 1.0
    """How often garbage is collected at most: a pass over a large process stops it for a tenth of a second."""
    spare_s: float = 30.0
    """How long other models are spared after one was evicted because batches lacked memory: a batch that can never fit
    must not empty the device."""
    unload_s: float = 30.0
    """How long an adapter may take to unload; beyond it its thread is left behind, and nobody waits for it."""
    close_unload_s: float = 5.0
    """How long a close waits for adapters to unload; the process ends anyway, and frees what they hold."""
    asked_unload_s: float = 60.0
    """How long an unload that somebody asked for waits until nobody uses the model."""
    close_s: float = 5.0
    """How long a close waits for each thread."""


DEFAULT_TIMEOUTS = Timeouts()

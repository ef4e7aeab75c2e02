"""Every wait and limit in time of the engine, with its reason, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. Operators cannot set these; tests pass shorter ones."""

    # A batch counts as hung beyond this and ten times its prediction.
    stall_s: float = 60.0
    # A stage counts as hung when each of its threads has been at one request for this long. Nobody predicts how long
    # preparing takes, and other processes may keep the cores busy.
    stage_s: float = 300.0
    # How long a load waits until nobody uses a model it evicts; then another is chosen.
    drain_s: float = 30.0
    # How long a load waits for room at all.
    room_s: float = 60.0
    # How long a load may work on the device before it counts as hung: nothing else can be loaded meanwhile.
    load_s: float = 600.0
    # How long measuring the device, or freeing its caches, may take: a driver that hangs must not hold up loads.
    measure_s: float = 10.0
    # How often memory and idle models are looked at with no load waiting.
    monitor_s: float = 1.0
    # How often garbage is collected at most: a pass over a large process stops it for a tenth of a second.
    collect_again_s: float = 1.0
    # How long other models are spared after one was evicted because batches lacked memory: a batch that can never fit
    # must not empty the device.
    spare_s: float = 30.0
    # How long an adapter may take to unload; beyond it its thread is left behind, and nobody waits for it.
    unload_s: float = 30.0
    # How long a close waits for adapters to unload; the process ends anyway, and frees what they hold.
    close_unload_s: float = 5.0
    # How long an unload that somebody asked for waits until nobody uses the model.
    asked_unload_s: float = 60.0
    # How long a close waits for each thread.
    close_s: float = 5.0


DEFAULT_TIMEOUTS = Timeouts()

"""Every wait and limit in time of the engine, with its reason, as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sie_core.catalog.sightings import PREVIEW_LIMIT_S
from sie_core.contracts import LoadFailure


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. Operators cannot set these; tests pass shorter ones."""

    # A batch counts as hung beyond this and ten times its prediction.
    stall_s: float = 60.0
    # A stage counts as hung when each of its threads has been at one request for this long. Preparation time is
    # unpredictable, and other processes may keep the cores busy.
    stage_s: float = 300.0
    # Longest predicted run of a batch on a CPU in seconds, unless `SIE_MAX_BATCH_MS` is set; None for no limit.
    cpu_batch_s: float | None = 0.25
    # How long a load waits until a model to evict is unused; then another is chosen.
    drain_s: float = 30.0
    # How long a load waits for room in total.
    room_s: float = 60.0
    # Least pause before the memory manager is asked again for a load: each time the device is measured.
    ask_again_s: float = 0.02
    # Seconds by which clients come back late: they are inexact, and a request takes a while to arrive.
    return_s: float = 0.5
    # Longest time after its load that a model is kept for clients that were asked to retry: they may never do so.
    longest_return_s: float = 2.0
    # Seconds of work on the device after which a load counts as hung: nothing else can be loaded until it ends.
    load_s: float = 600.0
    # How long measuring the device, or freeing its caches, may take: a driver that hangs must not hold up loads.
    measure_s: float = 10.0
    # Interval of looks at memory and idle models while no load waits.
    monitor_s: float = 1.0
    # Least interval of garbage collections: a pass over a large process stops it for a tenth of a second.
    collect_again_s: float = 1.0
    # How long other models are spared after an eviction because batches ran out of memory: a batch that can never fit
    # must not empty the device.
    spare_s: float = 30.0
    # How long an adapter may take to unload; afterwards its thread is left behind.
    unload_s: float = 30.0
    # How long a close waits for adapters to unload; the process ends anyway, which frees their memory.
    close_unload_s: float = 5.0
    # How long a requested unload waits until the model is unused.
    asked_unload_s: float = 60.0
    # How long a close waits for each thread.
    close_s: float = 5.0
    # How long a fetch may report no progress before `/health` mentions it: hashing a large file takes minutes, and
    # another process may be fetching the same weights.
    fetch_s: float = 300.0
    # Pause before a transient failure of a load is retried; it doubles with each attempt, up to the longest.
    cooldown_s: Mapping[LoadFailure, float] = field(
        default_factory=lambda: {"OOM": 60.0, "NETWORK": 30.0, "TIMEOUT": 30.0, "STORAGE": 60.0, "UNKNOWN": 600.0}
    )
    longest_cooldown_s: float = 1800.0
    # Pause before a request retries a permanent failure. The operator may have fixed it, and should not have to restart
    # the server with all its other models.
    permanent_cooldown_s: float = 600.0
    # How long a failed load of a LoRA adapter is cached, so that repeated requests for a missing adapter do not hit the
    # store. Retryable failures are cached for their Retry-After.
    lora_failure_s: float = 30.0
    # How long an unused LoRA adapter is spared from eviction. A client that was asked to retry comes back after the
    # load has ended. By then adapters in steady use would have displaced the new one.
    lora_unserved_s: float = 10.0
    # How long an eviction of a LoRA adapter waits for the threads that answered the last requests to drop their
    # references.
    lora_references_s: float = 1.0
    # How long the result of a look for local weights is used. Other processes add and remove weights, without notice.
    sightings_fresh_s: float = 5.0
    # How long a look waits for a family to describe a model that is not loaded.
    preview_s: float = PREVIEW_LIMIT_S
    # How long readiness waits at most for the first look: a disk may hang.
    first_look_s: float = 30.0


DEFAULT_TIMEOUTS = Timeouts()

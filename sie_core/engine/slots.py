"""What the engine knows of one model of the catalog: its state, its last load. Plain data, event loop only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sie_core.contracts import ModelState, ResolvedModel
from sie_core.engine.load_failures import FailedLoad
from sie_core.engine.loaded import LoadedModel

OVERDUE_SHARE = 0.25
"""How much longer a load that exceeds its estimate is thought to take, as a share of what it took so far."""
LEAST_RETRY_S = 1.0


@dataclass(slots=True, eq=False)
class ModelSlot:
    """What the engine knows of one model. Times are seconds of the monotonic clock."""

    resolved: ResolvedModel
    state: ModelState = "available"
    loaded: LoadedModel | None = None
    failure: FailedLoad | None = None
    change: asyncio.Task[None] | None = None
    """The load or unload under way; it never raises."""
    load_started: float = 0.0
    load_s: float | None = None
    """Seconds the last load took that succeeded."""
    stages_s: dict[str, float] = field(default_factory=dict)
    """Seconds of each finished stage of the last load."""

    def remaining_s(self, now: float, estimate: float) -> float:
        """Estimate how long the load under way will take yet."""
        elapsed = now - self.load_started
        expected = estimate if self.load_s is None else self.load_s
        return max(LEAST_RETRY_S, max(expected, elapsed * (1 + OVERDUE_SHARE)) - elapsed)

"""A loaded model: its adapter, and the engine's own objects for it. Plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from math import inf

from sie_core.cache import HeldWeights
from sie_core.concurrency.leases import Leases
from sie_core.contracts import Adapter, BatchLimits, ModelFacts, ModelFamily, ResolvedModel
from sie_core.contracts.model.config import DEFAULT_POOL
from sie_core.engine.metrics import ModelMetrics
from sie_core.engine.models.asked import Asked
from sie_core.engine.models.loras import Loras
from sie_core.postprocess.converters import Converters

# Failed requests in a row after which a model is reported: one client's bad requests come in bursts. Liveness stays
# green, as other models work.
FAILURES_TOLD = 10


@dataclass(slots=True, eq=False)
class LoadedModel:
    """One loaded model. Compared by identity: a reload makes another one."""

    resolved: ResolvedModel
    family: ModelFamily
    adapter: Adapter
    facts: ModelFacts
    # Cost of a full batch.
    limits: BatchLimits
    metrics: ModelMetrics
    # Used on the event loop.
    converters: Converters
    loras: Loras
    notes: dict[str, str] = field(default_factory=dict)
    # What plain requests resolve to, by what tells them apart; most requests are plain.
    plain: dict[Hashable, Asked] = field(default_factory=dict)
    leases: Leases = field(default_factory=Leases)
    # Keeps the files in the local cache for as long as this object lives.
    weights: HeldWeights | None = None
    # Requests that failed in a row; written by the device's health.
    failures: int = 0
    # Seconds that finishing and delivering the last batch's outputs took; written by the device's worker.
    finish_s: float = inf
    # Seconds that preparing the last request of one item took.
    prepare_s: float = inf
    # The id that it is listed under.
    id: str = field(init=False)
    # Equal for equal configs, on every machine.
    config_key: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.resolved.id
        self.config_key = hashlib.blake2b(repr(served(self.resolved)).encode(), digest_size=32).hexdigest()

    @property
    def problem(self) -> str | None:
        """The reason if its requests fail one after the other; None if they do not."""
        if self.failures < FAILURES_TOLD:
            return None
        return f"the last {self.failures} requests to it that ran failed; the server's log says why"


def served(model: ResolvedModel) -> ResolvedModel:
    """Return a model without the fields of its config that do not change how it is served."""
    return replace(model, config=replace(model.config, source="", license=None, expected=None, pool=DEFAULT_POOL))

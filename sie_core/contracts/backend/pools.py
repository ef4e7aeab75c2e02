"""Resource pools: capacity of a cluster that a client leases, which then serves only this client's requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, Protocol

PoolState = Literal["pending", "active", "expired"]


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool as a client requests it. Names are lower-case, except those of models."""

    gpus: Mapping[str, int] = field(default_factory=dict)
    """GPUs wanted, by machine profile; a worker is assigned as a whole, with all of its GPUs."""
    gpu_caps: Mapping[str, int] = field(default_factory=dict)
    """The most GPUs taken, by machine profile."""
    bundle: str | None = None
    """Workers of this bundle alone; None for any."""
    _: KW_ONLY
    queue_pool: str | None = None
    """Workers of this queue pool alone; None for any."""
    minimum_worker_count: int | None = None
    """Workers wanted in total; None means the sum of `gpus`, or one if that is empty."""
    pinned_models: tuple[str, ...] = ()
    """Loaded on each of the pool's workers, and kept there."""

    @property
    def least_workers(self) -> int:
        """Workers wanted in total."""
        if self.minimum_worker_count is None:
            return 0 if self.gpus else 1
        return self.minimum_worker_count


@dataclass(frozen=True, slots=True)
class PoolWorker:
    """A worker, as far as pools look at it."""

    name: str
    profile: str
    bundle: str
    _: KW_ONLY
    queue_pool: str
    gpus: int = 1
    gpu: str | None = None
    """The type of its device."""
    url: str | None = None


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as clients see it. Times are Unix seconds; None for the default pool, which was never made."""

    name: str
    spec: PoolSpec
    state: PoolState
    _: KW_ONLY
    workers: Sequence[PoolWorker]
    created_at: float | None
    renewed_at: float | None


class PoolLeases(Protocol):
    """A gateway's view of the pools. Names are lower-case. Called on the event loop.

    Every method raises `InferenceError`: `QUEUE_UNAVAILABLE` if the broker is unreachable, and `POOL_NOT_FOUND` for an
    unknown name.
    """

    async def create(self, name: str, spec: PoolSpec) -> PoolView:
        """Create a pool, or change its spec; its lease starts again.

        Raises:
            InferenceError: `INVALID_INPUT`: a profile, bundle, queue pool or model that is not known, with the field
                in `param`; `FORBIDDEN` for the default pool; `TOO_MANY_POOLS`.
        """
        ...

    async def get(self, name: str) -> PoolView:
        """Describe a pool."""
        ...

    async def listed(self) -> Sequence[PoolView]:
        """Describe all pools, the default one first."""
        ...

    async def renew(self, name: str) -> PoolView:
        """Begin a pool's lease anew."""
        ...

    async def delete(self, name: str) -> None:
        """End a pool.

        Raises:
            InferenceError: `FORBIDDEN` for the default pool.
        """
        ...

"""Resource pools in JSON: what a client sends, and what it is told."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, Field

from sie_core.api.schema import Schema
from sie_core.contracts import InvalidInput, PoolSpec, PoolView

MOST_NAMES: Final = 64
"""Machine profiles, and models, that a pool names."""
MOST_COUNT: Final = 100_000
"""Machines of one profile that a pool may ask for."""
_NAME: Final = re.compile(r"[A-Za-z0-9_\-]{1,128}")


def pool_name(name: str) -> str:
    """Return a pool's name in lower case.

    Raises:
        InvalidInput: It is none.
    """
    if not _NAME.fullmatch(name.strip()):
        raise InvalidInput(
            f"`name` is {name[:140]!r}; 1 to 128 letters, digits, `_` and `-` make a name.", param="name"
        )
    return name.strip().lower()


def _in_lower_case(counts: dict[str, int]) -> dict[str, int]:
    lower = {name.strip().lower(): count for name, count in counts.items()}
    if len(lower) < len(counts):
        raise ValueError("names a machine profile twice; case does not tell them apart")
    return lower


_Name = Annotated[str, Field(min_length=1, max_length=128)]
_Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
_Counts = Annotated[dict[_Name, _Count], Field(max_length=MOST_NAMES), AfterValidator(_in_lower_case)]
_Models = Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=MOST_NAMES)]


class PoolBody(Schema):
    """What makes a pool."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str
    gpus: _Counts | None = None
    gpu_caps: _Counts | None = None
    bundle: _Name | None = None
    queue_pool: _Name | None = None
    minimum_worker_count: _Count | None = None
    pinned_models: _Models | None = None

    def spec(self) -> PoolSpec:
        """Return what is asked for.

        Raises:
            InvalidInput: More is asked for than its own caps allow.
        """
        gpus, caps = self.gpus or {}, self.gpu_caps or {}
        for profile, wanted in gpus.items():
            if wanted > caps.get(profile, wanted):
                message = f"`gpu_caps.{profile}` is {caps[profile]} and `gpus.{profile}` is {wanted}; ask for no more."
                raise InvalidInput(message, param=f"gpu_caps.{profile}")
        return PoolSpec(
            gpus,
            caps,
            self.bundle,
            queue_pool=None if self.queue_pool is None else self.queue_pool.lower(),
            minimum_worker_count=self.minimum_worker_count,
            pinned_models=tuple(dict.fromkeys(self.pinned_models or ())),
        )


def describe_pool(pool: PoolView) -> dict[str, Any]:
    """Write a pool."""
    spec = pool.spec
    return {
        "name": pool.name,
        "spec": {
            "gpus": spec.gpus,
            "gpu_caps": spec.gpu_caps,
            "bundle": spec.bundle,
            "queue_pool": spec.queue_pool,
            "minimum_worker_count": spec.least_workers,
            "pinned_models": spec.pinned_models,
        },
        "status": {
            "state": pool.state,
            "assigned_workers": [
                {"name": each.name, "url": each.url, "gpu": each.profile, "bundle": each.bundle}
                for each in pool.workers
            ],
            "created_at": pool.created_at,
            "last_renewed": pool.renewed_at,
        },
    }

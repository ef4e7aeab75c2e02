"""Built-in plugin: the scheduler `fair`."""

from __future__ import annotations

from sie_core.batching import FairScheduler
from sie_core.contracts import CONTRACT_VERSION
from sie_core.contracts.device.scheduling import SchedulerFactory
from sie_core.hookspecs import hookimpl

__all__ = ["CONTRACT_VERSION", "sie_schedulers"]


@hookimpl
def sie_schedulers() -> dict[str, SchedulerFactory]:
    """Register it."""
    return {"fair": FairScheduler}

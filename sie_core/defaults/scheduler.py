"""Built-in plugin: the scheduler `fair`."""

from __future__ import annotations

from sie_core.batching import FairScheduler
from sie_core.contracts.device.scheduling import SchedulerFactory
from sie_core.hookspecs import hookimpl

__all__ = ["INTERFACES", "sie_schedulers"]

INTERFACES = ("sie.scheduler/1",)


@hookimpl
def sie_schedulers() -> dict[str, SchedulerFactory]:
    """Register it."""
    return {"fair": FairScheduler}

"""Decides whose work runs next on a device: the default scheduler, and the checks that hold any one to its contract."""

from sie_core.batching.scheduler import FairScheduler
from sie_core.batching.speed import SpeedTable

__all__ = ["FairScheduler", "SpeedTable"]

"""A scheduler that takes everything and gives what is no batch, and one that was written for an older engine."""

from sie_core.batching import FairScheduler
from sie_core.hookspecs import hookimpl


class Odd(FairScheduler):
    def next(self, now, *, ahead=False, within=None):
        return "a batch"


class Junk:
    INTERFACES = ("sie.scheduler/1",)

    @staticmethod
    @hookimpl
    def sie_schedulers():
        return {"scheduler-of-junk": Odd}


class Older(FairScheduler):
    def next(self, now, *, ahead=False):
        return super().next(now, ahead=ahead)


class Lacks:
    INTERFACES = ("sie.scheduler/1",)

    @staticmethod
    @hookimpl
    def sie_schedulers():
        return {"scheduler-that-lacks-a-parameter": Older}

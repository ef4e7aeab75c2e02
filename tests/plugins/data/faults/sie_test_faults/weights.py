"""Tiers that are asked before every other one."""

from sie_core.contracts import WeightTierFactory
from sie_core.hookspecs import hookimpl


class Tier:
    name = "tier-that-raises"

    def fetch(self, request):
        raise KeyError("a shelf")


def cannot_be_made(context):
    raise OSError("no such mount")


class CannotBeMade:
    INTERFACES = ("sie.tier/1",)

    @staticmethod
    @hookimpl
    def sie_weight_tiers():
        return [WeightTierFactory("tier-that-cannot-be-made", 1, cannot_be_made)]


class Raises:
    INTERFACES = ("sie.tier/1",)

    @staticmethod
    @hookimpl
    def sie_weight_tiers():
        return [WeightTierFactory(Tier.name, 2, lambda context: Tier())]

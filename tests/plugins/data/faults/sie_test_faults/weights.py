"""Tiers that are asked before every other one."""

import os
import threading
from pathlib import Path

from sie_core.contracts import WeightTierFactory
from sie_core.hookspecs import hookimpl


class Tier:
    def __init__(self, name, fetch):
        self.name, self._fetch = name, fetch

    def fetch(self, request):
        return self._fetch()


def raises():
    raise KeyError("a shelf")


def exits():
    raise SystemExit(3)


def nowhere():
    return Path("/nowhere")


def hangs():
    if os.environ.get("FAULTS_HANG"):
        threading.Event().wait()


def cannot_be_made(context):
    raise OSError("no such mount")


class CannotBeMade:
    INTERFACES = ("sie.tier/1",)

    @staticmethod
    @hookimpl
    def sie_weight_tiers():
        return [WeightTierFactory("tier-that-cannot-be-made", 1, cannot_be_made)]


def plugin(name, order, fetch):
    class Plugin:
        INTERFACES = ("sie.tier/1",)

        @staticmethod
        @hookimpl
        def sie_weight_tiers():
            return [WeightTierFactory(name, order, lambda context: Tier(name, fetch))]

    return Plugin


Raises = plugin("tier-that-raises", 2, raises)
Exits = plugin("tier-that-exits", 3, exits)
Nowhere = plugin("tier-of-nowhere", 4, nowhere)
Hangs = plugin("tier-that-hangs", 5, hangs)

"""Families that claim every model, were they able to."""

import threading

from sie_core.contracts import ModelFamily
from sie_core.hookspecs import hookimpl


def raise_it(card):
    return card.config["what no config has"]


def hang(card):
    threading.Event().wait()


def junk(card):
    return True


class Raise:
    INTERFACES = ("sie.family/1",)

    @staticmethod
    @hookimpl
    def sie_model_families():
        return [ModelFamily("claims-that-raise", "sie_test_faults:load", raise_it)]


class Hang:
    INTERFACES = ("sie.family/1",)

    @staticmethod
    @hookimpl
    def sie_model_families():
        return [ModelFamily("claims-that-hang", "sie_test_faults:load", hang)]


class Junk:
    INTERFACES = ("sie.family/1",)

    @staticmethod
    @hookimpl
    def sie_model_families():
        return [ModelFamily("claims-of-junk", "sie_test_faults:load", junk)]

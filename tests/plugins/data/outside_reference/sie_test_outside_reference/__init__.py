"""References outside the tree: letters counted one by one, and a library that is not installed."""

import os
from collections import Counter
from string import ascii_lowercase

import numpy as np

from sie_core.contracts import ItemOutput, PluginSetting, Reference, ReferenceModel
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.reference/1", "sie.setting/1")
WRONG_BY = PluginSetting("SIE_LETTERS_WRONG_BY", "0", "What is added to every count of a letter.", allowed=("0", "0.5"))


class Counts(ReferenceModel):
    gives = frozenset({"dense"})

    @classmethod
    def load(cls, context, served):
        return cls()

    def answer(self, items, task):
        if os.environ.get("LETTERS_RAISES"):
            raise KeyError("letters")
        wrong = float(WRONG_BY.value())
        counted = [Counter((item.text or "").lower()) for item in items]
        rows = [[counts[letter] + wrong for letter in ascii_lowercase] for counts in counted]
        return [ItemOutput(dense=np.array(row, dtype=np.float32)) for row in rows]


@hookimpl
def sie_references():
    target, dense = "sie_test_outside_reference:Counts", frozenset({"dense"})
    return [
        Reference("counting", frozenset({"letters"}), target, gives=dense),
        Reference("absent", frozenset({"fake"}), target, gives=dense, requires=("sie-test-absent>=2",)),
    ]


@hookimpl
def sie_settings():
    return [WRONG_BY]

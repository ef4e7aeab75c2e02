"""A family of letters, as the docs taught it before release 1.0: its adapter is a class with `load`."""

from pathlib import Path
from string import ascii_lowercase

import numpy as np

from sie_core.contracts import Adapter, InvalidInput, ItemOutput, ModelFacts, ModelFamily, Unit
from sie_core.hookspecs import hookimpl

CONTRACT_VERSION = 1


class Letters(Adapter):
    facts = ModelFacts(outputs=("dense",), dims={"dense": 26})

    @classmethod
    def load(cls, context):
        return cls()

    def prepare(self, items, task):
        return [self._unit(position, item, task) for position, item in enumerate(items)]

    def _unit(self, position, item, task):
        if item.text is None:
            raise InvalidInput("letters are counted in texts alone", param=f"items[{position}].text")
        tokens = len(item.text.split())
        counts = [item.text.lower().count(letter) for letter in ascii_lowercase]
        return Unit(position, cost=max(1, tokens), key=task.output_types, payload=counts, tokens=tokens)

    def run(self, units):
        return np.array([unit.payload for unit in units], dtype=np.float32)

    def finish(self, units, raw):
        return [ItemOutput(dense=row) for row in raw.copy()]


@hookimpl
def sie_model_families():
    return [ModelFamily("old-table", "sie_old_table:Letters", lambda card: None, weightless=True)]


@hookimpl
def sie_model_folders():
    return [Path(__file__).parent / "models"]

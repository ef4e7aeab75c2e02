"""A family outside the tree: a text's vector counts its letters, a to z."""

from pathlib import Path
from string import ascii_lowercase

import numpy as np

from sie_core.contracts import Adapter, InvalidInput, ItemOutput, ModelFacts, ModelFamily, Option, Unit
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.family/1", "sie.models/1")


class Letters(Adapter):
    facts = ModelFacts(outputs=("dense",), dims={"dense": 26})

    def prepare(self, items, task):
        return [self._unit(position, item, task) for position, item in enumerate(items)]

    def _unit(self, position, item, task):
        if item.text is None:
            raise InvalidInput("letters are counted in texts alone", param=f"items[{position}].text")
        tokens = len(item.text.split())
        counts = [item.text.lower().count(letter) for letter in ascii_lowercase]
        scale = task.options.get("scale", 1.0)
        return Unit(position, cost=max(1, tokens), key=task.output_types, payload=(counts, scale), tokens=tokens)

    def run(self, units):
        return np.array([unit.payload[0] for unit in units], dtype=np.float32)

    def finish(self, units, raw):
        rows = zip(units, raw.copy(), strict=True)
        return [ItemOutput(dense=row * np.float32(unit.payload[1])) for unit, row in rows]


def load(context):
    return Letters()


@hookimpl
def sie_model_families():
    options = (Option("scale", "finish", float, description="Multiplies every count."),)
    return [ModelFamily("letters", f"{__name__}:load", lambda card: None, options=options, weightless=True)]


@hookimpl
def sie_model_folders():
    return [Path(__file__).parent / "models"]

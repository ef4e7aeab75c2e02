"""Runs units in chosen batches and compares outputs as numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import Adapter, Item, ItemOutput, Task, Unit

TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
"""Tolerated difference of a value around 1 between batches, by precision."""


def answer_shared(adapter: Adapter, items: Sequence[Item], task: Task) -> list[ItemOutput]:
    """Answer items as the engine does under load: units of equal key run together, cheapest first."""
    return answer_together(adapter, items, [task])[0]


def answer_together(adapter: Adapter, items: Sequence[Item], tasks: Sequence[Task]) -> list[list[ItemOutput]]:
    """Answer items for several tasks at once, as `answer_shared`; units of two LoRA adapters never run together."""
    prepared = [list(adapter.prepare(items, task)) for task in tasks]
    groups: dict[Hashable, list[Unit]] = defaultdict(list)
    every = [(unit.cost, task.lora, unit) for task, units in zip(tasks, prepared, strict=True) for unit in units]
    for _, lora, unit in sorted(every, key=itemgetter(0)):
        groups[lora, unit.key].append(unit)
    of_unit = {id(unit): output for group in groups.values() for unit, output in ran(adapter, group)}
    return [combined(adapter, units, [of_unit[id(unit)] for unit in units], len(items)) for units in prepared]


def tolerance(adapter: Adapter) -> float:
    """Return what a value around 1 may differ by between batches, in the precision of a model."""
    return TOLERANCES.get(adapter.facts.precision, max(TOLERANCES.values()))


def run_units(adapter: Adapter, units: Sequence[Unit]) -> Any:
    """Run units and wait for the device; return what `finish` takes."""
    raw = adapter.run(units)
    adapter.await_device(units, raw)
    return raw


def ran(adapter: Adapter, units: Sequence[Unit]) -> list[tuple[Unit, ItemOutput]]:
    """Run and finish units together; return each with its output."""
    return list(zip(units, adapter.finish(units, run_units(adapter, units)), strict=True))


def answer_alone(adapter: Adapter, items: Sequence[Item], task: Task) -> list[ItemOutput]:
    """Answer every item separately, each unit in a run of its own."""
    answers = []
    for item in items:
        units = list(adapter.prepare([item], task))
        outputs = [ran(adapter, [unit])[0][1] for unit in units]
        answers += combined(adapter, units, outputs, 1)
    return answers


def combined(adapter: Adapter, units: Sequence[Unit], outputs: Sequence[ItemOutput], items: int) -> list[ItemOutput]:
    """Make one output of each of `items` items of the outputs of their units."""
    of_item: list[list[int]] = [[] for _ in range(items)]
    for position, unit in enumerate(units):
        of_item[unit.item].append(position)
    return [adapter.combine([units[i] for i in each], [outputs[i] for i in each]) for each in of_item]


def arrays(output: ItemOutput) -> dict[str, NDArray[np.float32]]:
    """Return every array of an output by name; a sparse vector has two, indices and values."""
    found: dict[str, NDArray[np.float32]] = {}
    if output.dense is not None:
        found["dense"] = output.dense
    if output.sparse is not None:
        found["sparse.values"] = output.sparse.values
    if output.multivector is not None:
        found["multivector"] = output.multivector
    return found


def distance(one: ItemOutput, other: ItemOutput) -> float:
    """Return the largest difference between two outputs of one item, relative to values above 1.

    Infinite if they differ in kind or shape: a score, an entity, an array, extracted data.
    """
    ours, theirs = _aligned(one, other)
    if ours.keys() != theirs.keys() or any(ours[name].shape != theirs[name].shape for name in ours):
        return float("inf")
    mine, yours = _scored(one), _scored(other)
    if mine.keys() != yours.keys() or one.data != other.data:
        return float("inf")
    scores = (abs(mine[name] - yours[name]) / max(1.0, abs(mine[name])) for name in mine)
    return max((*(_far(ours[name], theirs[name]) for name in ours if ours[name].size), *scores), default=0.0)


def _scored(output: ItemOutput) -> dict[Hashable, float]:
    """Return every score of an output by its subject."""
    found: dict[Hashable, float] = {} if output.score is None else {"score": output.score}
    for name in ("entities", "relations", "classifications", "objects"):
        for each in getattr(output, name) or ():
            found[name, replace(each, score=0.0)] = each.score
    return found


def _far(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    return float(np.max(np.abs(one - other))) / max(1.0, float(np.max(np.abs(one))))


def _aligned(
    one: ItemOutput, other: ItemOutput
) -> tuple[dict[str, NDArray[np.float32]], dict[str, NDArray[np.float32]]]:
    """Lay sparse values over the union of both index sets: a value near zero may be missing from one."""
    ours, theirs = arrays(one), arrays(other)
    if one.sparse is not None and other.sparse is not None:
        indices = np.union1d(one.sparse.indices, other.sparse.indices)
        for sparse, held in ((one.sparse, ours), (other.sparse, theirs)):
            full = np.zeros(len(indices), dtype=np.float32)
            full[np.searchsorted(indices, sparse.indices)] = sparse.values
            held["sparse.values"] = full
    return ours, theirs

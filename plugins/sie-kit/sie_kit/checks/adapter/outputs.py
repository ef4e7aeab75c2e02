"""Checks of facts and outputs: what the model says of itself, and what each row of a batch gets."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from sie_core.contracts import Item, ItemOutput, Operation, OutputType, Task
from sie_kit.comparing import answer_alone, answer_shared, answer_together, arrays, distance, tolerance
from sie_kit.loading import Items, LoadedModel
from sie_kit.outcomes import Skipped

INPUTS = {"text", "image", "audio", "video", "document"}


def facts_are_truthful(model: LoadedModel, items: Items) -> None:
    """Operations are known, outputs match in length and number; Matryoshka sizes end with the native one."""
    facts = model.adapter.facts
    wrong = set(facts.operations) - set(get_args(Operation))
    assert facts.operations, "facts.operations is empty: name what the model does"
    assert not wrong, f"facts.operations names {wrong}, which are none"
    assert bool(facts.outputs) == ("encode" in facts.operations), (
        "facts.outputs names what encode returns, and only that"
    )
    assert set(facts.outputs) <= set(facts.dims), f"facts.dims {dict(facts.dims)} leaves out one of {facts.outputs}"
    strange = set(facts.inputs) - INPUTS
    assert facts.inputs, f"facts.inputs is empty: name what an item may hold, of {sorted(INPUTS)}"
    assert not strange, f"facts.inputs names {sorted(strange)}; there are {sorted(INPUTS)}"
    length = facts.max_sequence_length
    assert length is None or length > 0, f"facts.max_sequence_length is {length}: None if there is no limit"
    sizes = facts.matryoshka_dims
    assert not sizes or max(sizes) == facts.dims["dense"], (
        f"facts.matryoshka_dims {sizes} must end with the native size"
    )
    if facts.outputs:
        _check_widths(model, items)


def _check_widths(model: LoadedModel, items: Items) -> None:
    for item, output in zip(items, answer_shared(model.adapter, items, model.task("encode")), strict=True):
        widths: dict[OutputType, Any] = {"dense": output.dense, "multivector": output.multivector}
        for name, array in widths.items():
            if array is not None:
                width, told = array.shape[-1], model.adapter.facts.dims[name]
                assert width == told, f"{name} of {item.text!r} has {width} dims, facts.dims says {told}"
        if output.sparse is not None and len(output.sparse.indices):
            highest, told = int(output.sparse.indices[-1]), model.adapter.facts.dims["sparse"]
            assert highest < told, f"sparse of {item.text!r} has the index {highest}, facts.dims says {told}"


def outputs_are_what_was_asked(model: LoadedModel, items: Items) -> None:
    """Only the requested vectors are returned, float32 and finite; scores are finite; entities match their offsets."""
    for task in model.tasks():
        for asked in [replace(task, output_types=(name,)) for name in task.output_types] or [task]:
            for item, output in zip(items, answer_shared(model.adapter, items, asked), strict=True):
                check_output(item, output, asked)


def check_output(item: Item, output: ItemOutput, task: Task) -> None:
    """Check the output of one item for its form; raises AssertionError."""
    if task.operation == "encode":
        _check_vectors(item, output, task.output_types)
    elif task.operation == "score":
        assert output.score is not None, f"score was asked of {item.text!r} and not given"
        assert math.isfinite(output.score), f"the score of {item.text!r} is {output.score}"
    else:
        _check_extraction(item, output)


def _check_vectors(item: Item, output: ItemOutput, asked: tuple[OutputType, ...]) -> None:
    found = arrays(output)
    given = {name.partition(".")[0] for name in found}
    assert given == set(asked), f"{' and '.join(asked)} was asked of {item.text!r}, {sorted(given)} was given"
    for name, array in found.items():
        assert array.dtype == np.float32, f"{name} is {array.dtype}, not float32"
        assert np.isfinite(array).all(), f"{name} of {item.text!r} is not finite"
    _check_form(item, output)


def _check_form(item: Item, output: ItemOutput) -> None:
    if output.dense is not None:
        assert output.dense.ndim == 1, f"dense of {item.text!r} has shape {output.dense.shape}, not (dims,)"
        norm = float(np.linalg.norm(output.dense))
        unit = norm == 0 or abs(norm - 1) < 1e-3  # a text without tokens has no direction
        assert not output.normalized or unit, f"normalized is True and {item.text!r} has norm {norm}"
    if output.multivector is not None:
        assert output.multivector.ndim == 2, f"multivector has shape {output.multivector.shape}, not (tokens, dims)"
    if output.sparse is not None:
        indices = output.sparse.indices
        assert indices.dtype == np.int32, f"sparse indices are {indices.dtype}, not int32"
        assert (np.diff(indices) > 0).all(), "sparse indices are not ascending and unique"
        assert indices.shape == output.sparse.values.shape, "sparse has not as many indices as values"


def _check_extraction(item: Item, output: ItemOutput) -> None:
    kinds = ("entities", "relations", "classifications", "objects", "data")
    assert any(getattr(output, kind) is not None for kind in kinds), f"nothing was extracted: fill one of {kinds}"
    places = []
    for entity in output.entities or ():
        if entity.start is not None and entity.end is not None:
            there = (item.text or "")[entity.start : entity.end]
            assert there == entity.text, f"{entity} says {entity.text!r} and its offsets cut out {there!r}"
            places.append((entity.start, entity.end))
    assert places == sorted(places), f"entities come in the order {places}, not in that of the text"
    falling = [each.score for each in output.classifications or ()]
    assert falling == sorted(falling, reverse=True), (
        f"classifications come with scores {falling}, not the highest first"
    )
    for name, span in [
        pair for each in output.relations or () for pair in ((each.head, each.head_span), (each.tail, each.tail_span))
    ]:
        there = (item.text or "")[slice(*span)] if span else name
        assert there == name, f"a relation names {name!r} and its span cuts out {there!r}"


def a_row_of_a_batch_is_the_batch_of_one(model: LoadedModel, items: Items) -> None:
    """An item's result does not depend on the rest of its batch."""
    most = tolerance(model.adapter)
    for task in model.tasks():
        alone = answer_alone(model.adapter, items, task)
        for order in (items, items[::-1], [item for item in items for _ in range(3)]):
            shared = answer_shared(model.adapter, order, task)
            for item, output in zip(order, shared, strict=True):
                far = distance(alone[items.index(item)], output)
                assert far <= most, (
                    f"{task.operation} of {item.text!r} moves by {far:.1e} in a batch, more than {most:.0e}"
                )


def a_lora_adapter_changes_its_own_rows_alone(model: LoadedModel, items: Items) -> None:
    """In one batch, rows with and without LoRA adapters equal their results alone; the base model is unchanged.

    Checked with the adapters that the model's config declares under `loras` and that are on this machine.
    """
    if not model.adapter.facts.takes_lora:
        raise Skipped("it takes no LoRA adapters")
    if not model.loras:
        raise Skipped("its config declares no LoRA adapter that is on this machine")
    most = tolerance(model.adapter)
    for task in model.tasks():
        before = answer_alone(model.adapter, items, task)
        loras = [model.adapter.load_lora(name, folder) for name, folder in model.loras.items()]
        tasks = [task, *(replace(task, lora=lora) for lora in loras), task]
        alone = [before, *(answer_alone(model.adapter, items, each) for each in tasks[1:-1]), before]
        for each, wanted, shared in zip(tasks, alone, answer_together(model.adapter, items, tasks), strict=True):
            who = "the base model" if each.lora is None else f"the LoRA adapter {each.lora.name}"
            far = max(map(distance, wanted, shared))
            assert far <= most, (
                f"{task.operation} of {who} moves by {far:.1e} beside other LoRA adapters, more than {most:.0e}"
            )
            changed = each.lora is None or max(map(distance, before, wanted)) > most
            assert changed, f"{who} changes no {task.operation} output: it is not applied"


def the_same_input_gives_the_same_output(model: LoadedModel, items: Items) -> None:
    """Two answers are equal, and an older one is not touched by a later run."""
    for task in model.tasks():
        first = answer_shared(model.adapter, items, task)
        kept = deepcopy(first)
        answer_alone(model.adapter, items[::-1], task)
        for item, before, now in zip(items, kept, first, strict=True):
            assert distance(before, now) == 0, (
                f"a later run changed the {task.operation} output of {item.text!r}: copy it"
            )
        again = answer_shared(model.adapter, items, task)
        for item, one, other in zip(items, first, again, strict=True):
            assert distance(one, other) <= tolerance(model.adapter), (
                f"{item.text!r} gives something else the second time"
            )

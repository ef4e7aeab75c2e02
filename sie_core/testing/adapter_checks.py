"""The checks of every adapter, run on a loaded model. A check that fails raises AssertionError with the reason.

The checks see an adapter through its contract only: they serve any family.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from sie_core.contracts import InvalidInput, Item, ItemOutput, Media, Operation, Option, OutputType, Task, Unit
from sie_core.testing.comparing import TOLERANCES, answer_alone, answer_shared, answer_together, arrays, distance
from sie_core.testing.loading import LoadedModel

Items = Sequence[Item]


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
    assert facts.max_sequence_length is None or facts.max_sequence_length > 0
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


def every_item_gives_units(model: LoadedModel, items: Items) -> None:
    """Each item gives at least one unit, in order, with a cost of at least 1 and a key that can be hashed."""
    for task in model.tasks():
        units = list(model.adapter.prepare(items, task))
        positions = [unit.item for unit in units]
        assert sorted(set(positions)) == list(range(len(items))), f"items {positions} of the units are not those given"
        assert positions == sorted(positions), f"units come in the order {positions}, not in the items'"
        for unit in units:
            assert isinstance(unit.cost, int), f"cost {unit.cost!r} is no int"
            assert unit.cost >= 1, f"cost {unit.cost} of item {unit.item} is below 1"
            assert unit.nbytes >= 0, f"nbytes {unit.nbytes} of item {unit.item} is below 0"
            assert unit.tokens >= 0, f"tokens {unit.tokens} of item {unit.item} is below 0"
            hash(unit.key)


def outputs_are_what_was_asked(model: LoadedModel, items: Items) -> None:
    """Only the requested vectors are returned, float32 and finite; scores are finite; entities match their offsets."""
    facts = model.adapter.facts
    for output_type in facts.outputs:
        task = replace(model.task("encode"), output_types=(output_type,))
        for item, output in zip(items, answer_shared(model.adapter, items, task), strict=True):
            _check_vectors(item, output, output_type)
    if "score" in facts.operations:
        for item, output in zip(items, answer_shared(model.adapter, items, model.task("score")), strict=True):
            assert output.score is not None, f"score was asked of {item.text!r} and not given"
            assert math.isfinite(output.score), f"the score of {item.text!r} is {output.score}"
    if "extract" in facts.operations:
        for item, output in zip(items, answer_shared(model.adapter, items, model.task("extract")), strict=True):
            _check_extraction(item, output)


def _check_vectors(item: Item, output: ItemOutput, output_type: OutputType) -> None:
    found = arrays(output)
    given = {name.partition(".")[0] for name in found}
    assert given == {output_type}, f"{output_type} was asked of {item.text!r}, {sorted(given)} was given"
    for name, array in found.items():
        assert array.dtype == np.float32, f"{name} is {array.dtype}, not float32"
        assert np.isfinite(array).all(), f"{name} of {item.text!r} is not finite"
    _check_form(item, output)


def _check_form(item: Item, output: ItemOutput) -> None:
    if output.dense is not None:
        assert output.dense.ndim == 1, f"dense of {item.text!r} has shape {output.dense.shape}, not (dims,)"
        norm = float(np.linalg.norm(output.dense))
        assert not output.normalized or abs(norm - 1) < 1e-3, f"normalized is True and {item.text!r} has norm {norm}"
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
    tolerance = _tolerance(model)
    for task in model.tasks():
        alone = answer_alone(model.adapter, items, task)
        for order in (items, items[::-1], [item for item in items for _ in range(3)]):
            shared = answer_shared(model.adapter, order, task)
            for item, output in zip(order, shared, strict=True):
                far = distance(alone[items.index(item)], output)
                assert far <= tolerance, (
                    f"{task.operation} of {item.text!r} moves by {far:.1e} in a batch, more than {tolerance:.0e}"
                )


def _tolerance(model: LoadedModel) -> float:
    return TOLERANCES.get(model.adapter.facts.precision, max(TOLERANCES.values()))


def a_lora_adapter_changes_its_own_rows_alone(model: LoadedModel, items: Items) -> None:
    """In one batch, rows with and without LoRA adapters equal their results alone; the base model is unchanged.

    Checked with the adapters that the model's config declares under `loras` and that are on this machine.
    """
    if not model.adapter.facts.takes_lora or not model.loras:
        return
    tolerance = _tolerance(model)
    for task in model.tasks():
        before = answer_alone(model.adapter, items, task)
        loras = [model.adapter.load_lora(name, folder) for name, folder in model.loras.items()]
        tasks = [task, *(replace(task, lora=lora) for lora in loras), task]
        alone = [before, *(answer_alone(model.adapter, items, each) for each in tasks[1:-1]), before]
        for each, wanted, shared in zip(tasks, alone, answer_together(model.adapter, items, tasks), strict=True):
            who = "the base model" if each.lora is None else f"the LoRA adapter {each.lora.name}"
            far = max(map(distance, wanted, shared))
            assert far <= tolerance, (
                f"{task.operation} of {who} moves by {far:.1e} beside other LoRA adapters, more than {tolerance:.0e}"
            )
            changed = each.lora is None or max(map(distance, before, wanted)) > tolerance
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
            assert distance(one, other) <= _tolerance(model), f"{item.text!r} gives something else the second time"


def prepare_may_run_on_several_threads(model: LoadedModel, items: Items) -> None:
    """Units prepared by eight threads at once are those prepared by one."""
    for task in model.tasks():
        expected = [_visible(unit) for unit in model.adapter.prepare(items, task)]
        with ThreadPoolExecutor(8) as pool:
            for units in pool.map(lambda _, task=task: list(model.adapter.prepare(items, task)), range(32)):
                assert [_visible(unit) for unit in units] == expected, "prepare gives other units on another thread"


def _visible(unit: Unit) -> tuple[Any, ...]:
    return unit.item, unit.cost, unit.key, unit.tokens, unit.truncated


def only_run_options_keep_requests_apart(model: LoadedModel, items: Items) -> None:
    """An option that `run` reads changes the key, any other does not: batches are shared, never mixed.

    Labels are no options and keep no one apart either.
    """
    for task in model.tasks():
        for option in model.family.options:
            if option.stage != "load" and (not option.operations or task.operation in option.operations):
                _check_key(model, items[0], option, task)
        if task.labels:
            keys = {
                unit.key for labels in (task.labels, task.labels[:1]) for unit in _prepared(model, items, task, labels)
            }
            alike = {unit.key for unit in _prepared(model, items, task, task.labels)}
            assert keys == alike, "other labels change the key, and requests with other labels must share batches"


def _prepared(model: LoadedModel, items: Items, task: Task, labels: tuple[str, ...]) -> Sequence[Unit]:
    return list(model.adapter.prepare(items, replace(task, labels=labels)))


def _check_key(model: LoadedModel, item: Item, option: Option, task: Task) -> None:
    keys = list(_keys_with(model, item, option, task))
    changed = len(set(keys)) > 1
    if option.stage == "run":
        assert changed or len(keys) < 2, f"run reads {option.name!r} and no value of it changes the key"
    else:
        assert not changed, f"{option.stage} reads {option.name!r}, which must not change the key"


def _keys_with(model: LoadedModel, item: Item, option: Option, task: Task) -> Iterable[Any]:
    for values in ({}, *({option.name: value} for value in _values(option))):
        options = {name: value for name, value in task.options.items() if name != option.name}
        try:
            units = list(model.adapter.prepare([item], replace(task, options={**options, **values})))
        except InvalidInput:  # this value does not suit the sample
            continue
        yield units[0].key


def _values(option: Option) -> list[Any]:
    """Return a few allowed values of an option."""
    if option.choices:
        return list(option.choices)[:3]
    kinds = option.type if isinstance(option.type, tuple) else (option.type,)
    low = 0 if option.minimum is None else option.minimum
    high = low + 2 if option.maximum is None else option.maximum
    by_kind: dict[type, list[Any]] = {
        bool: [False, True],
        str: ["sie", "kit"],
        int: [int(low), int(high)],
        float: [float(low), float(high)],
    }
    return [value for kind in kinds for value in by_kind.get(kind, [])]


def refusals_are_typed(model: LoadedModel, items: Items) -> None:
    """An item with nothing in it, and bytes that are no image, are InvalidInput that names the field."""
    for task in model.tasks():
        error = _refusal(model, [items[0], Item()], task, "an item without content")
        assert error.code == "INVALID_INPUT", f"an item without content answers {error.code}"
        assert (error.param or "").startswith("items[1]"), f"param is {error.param!r}, not a field of items[1]"
        assert error.message, "the message is empty"
        if "image" in model.adapter.facts.inputs:
            error = _refusal(model, [items[0], Item(images=(Media(b"corrupt"),))], task, "an image of 7 odd bytes")
            assert error.param == "items[1].images[0]", f"param is {error.param!r}, not 'items[1].images[0]'"


def _refusal(model: LoadedModel, items: Items, task: Task, what: str) -> InvalidInput:
    try:
        list(model.adapter.prepare(items, task))
    except InvalidInput as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what} raises {type(error).__name__}, not InvalidInput") from error
    raise AssertionError(f"{what} is accepted")


def long_texts_are_cut_and_say_so(model: LoadedModel, items: Items) -> None:
    """A text beyond the limit is cut to it and reported, or refused if the request says so.

    A text that `extract` reads in windows is not cut.
    """
    limit = model.adapter.facts.max_sequence_length
    if limit is None or "text" not in model.adapter.facts.inputs:
        return
    for task in model.tasks():
        _check_cut(model, items[0], Item(text="word " * (2 * limit + 8)), task, limit)


def _check_cut(model: LoadedModel, short: Item, long: Item, task: Task, limit: int) -> None:
    units = list(model.adapter.prepare([short, long], task))
    cuts = [unit.truncated for unit in units if unit.item == 1 and unit.truncated is not None]
    if task.operation == "extract" and not cuts and sum(unit.item == 1 for unit in units) > 1:
        return
    assert len(cuts) == 1, f"a text of more than {limit} tokens reports {len(cuts)} cuts, not 1"
    assert cuts[0].tokens > cuts[0].kept, f"the cut says {cuts[0].tokens} tokens of which {cuts[0].kept} were kept"
    assert cuts[0].kept <= limit, f"{cuts[0].kept} tokens were kept and the limit is {limit}"
    assert all(unit.truncated is None for unit in units if unit.item == 0), "a short text reports a cut"
    error = _refusal(model, [short, long], replace(task, truncate="error"), "a long text with truncate=error")
    assert error.code == "INPUT_TOO_LONG", f"a refused long text answers {error.code}, not INPUT_TOO_LONG"
    assert error.param == "items[1].text", f"param is {error.param!r}, not 'items[1].text'"


ADAPTER_CHECKS: Sequence[Callable[[LoadedModel, Items], None]] = (
    facts_are_truthful,
    every_item_gives_units,
    outputs_are_what_was_asked,
    a_row_of_a_batch_is_the_batch_of_one,
    a_lora_adapter_changes_its_own_rows_alone,
    the_same_input_gives_the_same_output,
    prepare_may_run_on_several_threads,
    only_run_options_keep_requests_apart,
    refusals_are_typed,
    long_texts_are_cut_and_say_so,
)

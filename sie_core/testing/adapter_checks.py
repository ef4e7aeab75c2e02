"""What every adapter must do, checked on a loaded model. A check that fails raises AssertionError with the reason.

The checks see an adapter through its contract only: they serve any family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from sie_core.contracts import InvalidInput, Item, ItemOutput, Option, OutputType, Task, Unit
from sie_core.testing.comparing import TOLERANCES, answer_alone, answer_shared, arrays, distance
from sie_core.testing.loading import LoadedModel

Items = Sequence[Item]


def facts_are_truthful(model: LoadedModel, items: Items) -> None:
    """Outputs are as long and as many as the facts say; Matryoshka sizes end with the native one."""
    facts = model.adapter.facts
    assert facts.outputs, "facts.outputs is empty: name what encode can return"
    assert set(facts.outputs) <= set(facts.dims), f"facts.dims {dict(facts.dims)} leaves out one of {facts.outputs}"
    assert facts.max_sequence_length is None or facts.max_sequence_length > 0
    sizes = facts.matryoshka_dims
    assert not sizes or max(sizes) == facts.dims["dense"], (
        f"facts.matryoshka_dims {sizes} must end with the native size"
    )
    for item, output in zip(items, answer_shared(model.adapter, items, model.task()), strict=True):
        widths: dict[OutputType, Any] = {"dense": output.dense, "multivector": output.multivector}
        for name, array in widths.items():
            if array is not None:
                width, told = array.shape[-1], facts.dims[name]
                assert width == told, f"{name} of {item.text!r} has {width} dims, facts.dims says {told}"


def every_item_gives_units(model: LoadedModel, items: Items) -> None:
    """Each item gives at least one unit, in order, with a cost of at least 1 and a key that can be hashed."""
    units = model.adapter.prepare(items, model.task())
    positions = [unit.item for unit in units]
    assert sorted(set(positions)) == list(range(len(items))), f"items {positions} of the units are not those given"
    assert positions == sorted(positions), f"units come in the order {positions}, not in the items'"
    for unit in units:
        assert isinstance(unit.cost, int), f"cost {unit.cost!r} is no int"
        assert unit.cost >= 1, f"cost {unit.cost} of item {unit.item} is below 1"
        assert unit.tokens >= 0, f"tokens {unit.tokens} of item {unit.item} is below 0"
        hash(unit.key)


def outputs_are_what_was_asked(model: LoadedModel, items: Items) -> None:
    """Each output type asked for alone is given alone: float32, finite, of unit length where it says so."""
    for output_type in model.adapter.facts.outputs:
        task = replace(model.task(), output_types=(output_type,))
        for item, output in zip(items, answer_shared(model.adapter, items, task), strict=True):
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


def a_row_of_a_batch_is_the_batch_of_one(model: LoadedModel, items: Items) -> None:
    """What an item gives does not depend on its company."""
    task = model.task()
    alone = answer_alone(model.adapter, items, task)
    tolerance = _tolerance(model)
    for order in (items, items[::-1], [item for item in items for _ in range(3)]):
        shared = answer_shared(model.adapter, order, task)
        for item, output in zip(order, shared, strict=True):
            far = distance(alone[items.index(item)], output)
            assert far <= tolerance, f"{item.text!r} moves by {far:.1e} in a batch, more than {tolerance:.0e}"


def _tolerance(model: LoadedModel) -> float:
    return TOLERANCES.get(model.adapter.facts.precision, max(TOLERANCES.values()))


def the_same_input_gives_the_same_output(model: LoadedModel, items: Items) -> None:
    """Two answers are equal, and an older one is not touched by a later run."""
    task = model.task()
    first = answer_shared(model.adapter, items, task)
    kept = [{name: array.copy() for name, array in arrays(output).items()} for output in first]
    answer_alone(model.adapter, items[::-1], task)
    for item, before, now in zip(items, kept, first, strict=True):
        for name, array in before.items():
            assert np.array_equal(array, arrays(now)[name]), f"a later run changed {name} of {item.text!r}: copy it"
    again = answer_shared(model.adapter, items, task)
    for item, one, other in zip(items, first, again, strict=True):
        assert distance(one, other) <= _tolerance(model), f"{item.text!r} gives something else the second time"


def prepare_may_run_on_several_threads(model: LoadedModel, items: Items) -> None:
    """Units prepared by eight threads at once are those prepared by one."""
    task = model.task()
    expected = [_visible(unit) for unit in model.adapter.prepare(items, task)]
    with ThreadPoolExecutor(8) as pool:
        for units in pool.map(lambda _: model.adapter.prepare(items, task), range(32)):
            assert [_visible(unit) for unit in units] == expected, "prepare gives other units on another thread"


def _visible(unit: Unit) -> tuple[Any, ...]:
    return unit.item, unit.cost, unit.key, unit.tokens, unit.truncated


def only_run_options_keep_requests_apart(model: LoadedModel, items: Items) -> None:
    """An option that `run` reads changes the key, any other does not: batches are shared, never mixed."""
    for option in model.family.options:
        if option.stage == "load":
            continue
        keys = list(_keys_with(model, items[0], option))
        changed = len(set(keys)) > 1
        if option.stage == "run":
            assert changed or len(keys) < 2, f"run reads {option.name!r} and no value of it changes the key"
        else:
            assert not changed, f"{option.stage} reads {option.name!r}, which must not change the key"


def _keys_with(model: LoadedModel, item: Item, option: Option) -> Iterable[Any]:
    task = model.task()
    for values in ({}, *({option.name: value} for value in _values(option))):
        options = {name: value for name, value in task.options.items() if name != option.name}
        try:
            units = model.adapter.prepare([item], replace(task, options={**options, **values}))
        except InvalidInput:  # this value does not suit the sample
            continue
        yield units[0].key


def _values(option: Option) -> list[Any]:
    """Give a few allowed values of an option."""
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
    """An item with nothing in it is InvalidInput that names the field."""
    error = _refusal(model, [items[0], Item()], model.task(), "an item without content")
    assert error.code == "INVALID_INPUT", f"an item without content answers {error.code}"
    assert (error.param or "").startswith("items[1]"), f"param is {error.param!r}, not a field of items[1]"
    assert error.message, "the message is empty"


def _refusal(model: LoadedModel, items: Items, task: Task, what: str) -> InvalidInput:
    try:
        model.adapter.prepare(items, task)
    except InvalidInput as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what} raises {type(error).__name__}, not InvalidInput") from error
    raise AssertionError(f"{what} is accepted")


def long_texts_are_cut_and_say_so(model: LoadedModel, items: Items) -> None:
    """A text beyond the limit is cut to it and reported, or refused where the request says so."""
    limit = model.adapter.facts.max_sequence_length
    if limit is None or "text" not in model.adapter.facts.inputs:
        return
    item = Item(text="word " * (2 * limit + 8))
    units = model.adapter.prepare([items[0], item], model.task())
    cuts = [unit.truncated for unit in units if unit.item == 1 and unit.truncated is not None]
    assert len(cuts) == 1, f"a text of more than {limit} tokens reports {len(cuts)} cuts, not 1"
    assert cuts[0].tokens > cuts[0].kept, f"the cut says {cuts[0].tokens} tokens of which {cuts[0].kept} were kept"
    assert cuts[0].kept <= limit, f"{cuts[0].kept} tokens were kept and the limit is {limit}"
    assert all(unit.truncated is None for unit in units if unit.item == 0), "a short text reports a cut"
    error = _refusal(
        model, [items[0], item], replace(model.task(), truncate="error"), "a long text with truncate=error"
    )
    assert error.code == "INPUT_TOO_LONG", f"a refused long text answers {error.code}, not INPUT_TOO_LONG"
    assert error.param == "items[1].text", f"param is {error.param!r}, not 'items[1].text'"


ADAPTER_CHECKS: Sequence[Callable[[LoadedModel, Items], None]] = (
    facts_are_truthful,
    every_item_gives_units,
    outputs_are_what_was_asked,
    a_row_of_a_batch_is_the_batch_of_one,
    the_same_input_gives_the_same_output,
    prepare_may_run_on_several_threads,
    only_run_options_keep_requests_apart,
    refusals_are_typed,
    long_texts_are_cut_and_say_so,
)

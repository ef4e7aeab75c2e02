"""Checks of units: what `prepare` makes of items, and what runs and threads make of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import Any

from sie_core.contracts import InvalidInput, Item, ItemOutput, Task
from sie_kit.comparing import answer_alone, answer_shared, combined, distance, ran, run_units, tolerance
from sie_kit.loading import Items, LoadedModel, values_of
from sie_kit.outcomes import Skipped

MANY = 200
"""Units of one batch: more than the rows of a buffer that was made for a common size."""
THREADS = 8
"""Threads at once: more than the CPU threads of most engines."""


def every_item_gives_units(model: LoadedModel, items: Items) -> None:
    """Each item gives at least one unit, in order, with a cost of at least 1 and a key that can be hashed.

    A longer text costs no less.
    """
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
            try:
                hash(unit.key)
            except TypeError as error:
                raise AssertionError(f"the key {unit.key!r} cannot be hashed: make it a tuple") from error
        if "text" in model.adapter.facts.inputs:
            _check_costs(model, task)


def _check_costs(model: LoadedModel, task: Task) -> None:
    short, long = Item(text="one"), Item(text="one two three " * 10)
    costs = [sum(unit.cost for unit in model.adapter.prepare([item], task)) for item in (short, long)]
    assert costs[0] <= costs[1], f"a text of 30 words costs {costs[1]}, one of a word {costs[0]}: cost is in tokens"


def prepare_may_run_on_several_threads(model: LoadedModel, items: Items) -> None:
    """Units prepared by eight threads at once, of other items each, are those prepared by one."""
    orders = [[*items[place:], *items[:place]] for place in range(len(items))] * (32 // len(items) + 1)
    for task in model.tasks():
        expected = [_seen(model, order, task) for order in orders]
        with ThreadPoolExecutor(THREADS) as pool:
            for units, wanted in zip(pool.map(lambda o, t=task: _seen(model, o, t), orders), expected, strict=True):
                assert units == wanted, "prepare gives other units on another thread"


def _seen(model: LoadedModel, items: Items, task: Task) -> list[tuple[Any, ...]]:
    units = model.adapter.prepare(items, task)
    return [(unit.item, unit.cost, unit.key, unit.tokens, unit.truncated) for unit in units]


def finish_may_run_on_several_threads(model: LoadedModel, items: Items) -> None:
    """Eight threads finish the batches of one model at once; each gets the outputs of its own batch."""
    adapter = model.adapter
    for task in model.tasks():
        alone = answer_alone(adapter, items, task)
        places = [place % len(items) for place in range(4 * THREADS)]
        batches = [(place, list(adapter.prepare([items[place]], task))) for place in places]
        raws = [[run_units(adapter, [unit]) for unit in units] for _, units in batches]

        def finished(place: int, batches: Any = batches, raws: Any = raws) -> ItemOutput:
            units = batches[place][1]
            pairs = zip(units, raws[place], strict=True)
            return combined(adapter, units, [adapter.finish([unit], raw)[0] for unit, raw in pairs], 1)[0]

        with ThreadPoolExecutor(THREADS) as pool:
            for (place, _), output in zip(batches, pool.map(finished, range(len(batches))), strict=True):
                far = distance(alone[place], output)
                assert far <= tolerance(model.adapter), f"finish mixes up batches of several threads: {far:.1e} off"


def the_same_units_run_twice(model: LoadedModel, items: Items) -> None:
    """A batch that failed for its neighbours, or in `finish`, is run again: its units give the same once more."""
    for task in model.tasks():
        units = list(model.adapter.prepare(items[:2], task))
        first = [deepcopy(ran(model.adapter, [unit])[0][1]) for unit in units]
        try:
            again = [ran(model.adapter, [unit])[0][1] for unit in units]
        except Exception as error:
            raise AssertionError(f"units cannot be run again ({type(error).__name__}: {error}): leave them") from error
        far = max(map(distance, first, again))
        assert far <= tolerance(model.adapter), f"units that run again give something else, {far:.1e} off"


def many_units_run_together(model: LoadedModel, items: Items) -> None:
    """Two hundred short texts in one batch give what each gives alone."""
    if "text" not in model.adapter.facts.inputs:
        raise Skipped("it reads no text")
    short = [Item(text=f"{'one two'[: 3 + 4 * (place % 2)]} {place % 7}") for place in range(MANY)]
    for task in model.tasks():
        alone = answer_alone(model.adapter, short[:14], task)
        shared = answer_shared(model.adapter, short, task)
        for place, output in enumerate(shared):
            far = distance(alone[place % 14], output)
            assert far <= tolerance(model.adapter), f"text {place} of {MANY} in one batch is {far:.1e} off"


def items_are_told_apart_by_what_they_hold(model: LoadedModel, items: Items) -> None:
    """Two items of one id and other texts are answered each for itself: a client's ids mean nothing."""
    for task in model.tasks():
        plain = answer_alone(model.adapter, [replace(item, id=f"own-{n}") for n, item in enumerate(items)], task)
        named = answer_alone(model.adapter, [replace(item, id="same") for item in items], task)
        for item, one, other in zip(items, plain, named, strict=True):
            far = distance(one, other)
            assert far <= tolerance(model.adapter), f"with the id of others, {item.text!r} gives what is {far:.1e} off"


def what_it_is_given_stays_as_it_is(model: LoadedModel, items: Items) -> None:
    """The list of items and the options of the task are not changed: the engine uses them again."""
    for task in model.tasks():
        options = [{}, *({option.name: value} for option in model.options(task) for value in values_of(option)[:1])]
        for given in ({**task.options, **more} for more in options):
            asked, held = replace(task, options=given), list(items)
            before, order = dict(given), list(items)
            try:
                list(model.adapter.prepare(held, asked))
            except InvalidInput:  # this value does not suit the sample
                continue
            assert held == order, "prepare changes the list of items that it is given"
            assert given == before, f"prepare changes the options that it is given: {before} became {given}"


def texts_of_equal_options_share_a_key(model: LoadedModel, items: Items) -> None:
    """Texts of one request, short and long, have one key: otherwise they never share a batch."""
    texts = [item for item in items if item.text is not None and not item.images]
    if not texts:
        raise Skipped("it reads no text")
    for task in model.tasks():
        keys = {unit.key for unit in model.adapter.prepare(texts, task)}
        assert len(keys) == 1, f"texts of one request have {len(keys)} keys and share no batch: {_few(keys)}"


def _few(keys: set[Any]) -> str:
    return ", ".join(f"{key!r:.60}" for key in sorted(keys, key=repr)[:2])

"""Checks of requests: options, labels and queries are each request's own, and refusals have a type."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from sie_core.contracts import InputType, InvalidInput, Item, ItemOutput, Media, Option, Task, Unit
from sie_kit.comparing import answer_alone, answer_shared, answer_together, distance, tolerance
from sie_kit.loading import LABELS, Items, LoadedModel, values_of
from sie_kit.outcomes import Skipped

ROLES: Sequence[InputType | None] = (None, "query", "document")
FRESH_S = 5.0
"""Seconds after which the model is not loaded for another option."""
FIELDS = frozenset(field.name for field in fields(Task))


def only_run_options_keep_requests_apart(model: LoadedModel, items: Items) -> None:
    """An option that `run` reads changes the key, any other does not: batches are shared, never mixed.

    Labels are no options and keep no one apart either.
    """
    for task in model.tasks():
        for option in model.options(task):
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
    for values in ({}, *({option.name: value} for value in values_of(option))):
        options = {name: value for name, value in task.options.items() if name != option.name}
        try:
            units = list(model.adapter.prepare([item], replace(task, options={**options, **values})))
        except InvalidInput:  # this value does not suit the sample
            continue
        yield units[0].key


def refusals_are_typed(model: LoadedModel, items: Items) -> None:
    """An item with nothing in it, and bytes that are no image, are InvalidInput that names the field."""
    for task in model.tasks():
        error = refusal(model, [items[0], Item()], task, "an item without content")
        assert error.code == "INVALID_INPUT", f"an item without content answers {error.code}"
        assert (error.param or "").startswith("items[1]"), f"param is {error.param!r}, not a field of items[1]"
        assert error.message, "the message is empty"
        if "image" in model.adapter.facts.inputs:
            error = refusal(model, [items[0], Item(images=(Media(b"corrupt"),))], task, "an image of 7 odd bytes")
            assert error.param == "items[1].images[0]", f"param is {error.param!r}, not 'items[1].images[0]'"


def refusal(model: LoadedModel, items: Items, task: Task, what: str) -> InvalidInput:
    """Return the error by which items are refused; AssertionError if they are not, or by another type."""
    try:
        list(model.adapter.prepare(items, task))
    except InvalidInput as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what} raises {type(error).__name__}, not InvalidInput") from error
    raise AssertionError(f"{what} is accepted")


def options_of_a_request_are_its_own(model: LoadedModel, items: Items) -> None:
    """A request is answered by its own options, whoever shares its batch and whatever was asked before.

    Compared with the model loaded anew, which has seen no other options.
    """
    checked, started = False, time.monotonic()
    for task in model.tasks():
        tasks = [task, *_with_options(model, items[0], task)]
        if len(tasks) == 1:
            continue
        checked = True
        alone = [answer_alone(model.adapter, items, each) for each in tasks]
        for each, given in zip(tasks, alone, strict=True):
            if time.monotonic() - started > FRESH_S:
                break
            fresh = model.again()
            wanted = answer_shared(fresh.adapter, items, each)
            _same(model, wanted, given, f"asked after others, {_told(each, task)}")
            fresh.adapter.unload()
        for each, expected, shared in zip(tasks, alone, answer_together(model.adapter, items, tasks), strict=True):
            _same(model, expected, shared, f"beside others, {_told(each, task)}")
    if not checked:
        raise Skipped("its requests have no options")


def _with_options(model: LoadedModel, item: Item, task: Task) -> Iterable[Task]:
    for option in model.options(task):
        for value in values_of(option)[-1:]:
            asked = replace(task, options={**task.options, option.name: value})
            try:
                list(model.adapter.prepare([item], asked))
            except InvalidInput:  # this value does not suit the sample
                continue
            yield asked


def _told(task: Task, plain: Task) -> str:
    given = {name: value for name, value in task.options.items() if plain.options.get(name) != value}
    return f"a request with {given}" if given else "a request without options"


def _same(model: LoadedModel, wanted: Sequence[ItemOutput], given: Sequence[ItemOutput], what: str) -> None:
    far = max(map(distance, wanted, given))
    assert far <= tolerance(model.adapter), f"{what} is answered otherwise, {far:.1e} off"


def labels_of_a_request_are_its_own(model: LoadedModel, items: Items) -> None:
    """Two requests of other labels share a batch, and each gets its own labels only."""
    if model.adapter.facts.takes_labels == "no":
        raise Skipped("it takes no labels")
    task = model.task("extract")
    tasks = [replace(task, labels=labels) for labels in (LABELS[:1], LABELS[1:], LABELS)]
    try:
        alone = [answer_alone(model.adapter, items, each) for each in tasks]
    except InvalidInput as error:
        raise Skipped(f"it refuses the labels {LABELS}: {error.message}") from None
    for asked, expected, shared in zip(tasks, alone, answer_together(model.adapter, items, tasks), strict=True):
        _same(model, expected, shared, f"beside other labels, a request of {asked.labels}")
        for output in expected:
            found = {entity.label for entity in output.entities or ()}
            found |= {each.label for each in output.classifications or ()}
            assert found <= set(asked.labels), f"{sorted(found)} were found, and the labels are {asked.labels}"


def a_score_is_of_its_query(model: LoadedModel, items: Items) -> None:
    """Other queries give other scores, alone and in one batch."""
    if "score" not in model.adapter.facts.operations:
        raise Skipped("it has no scores of its own")
    texts = [item.text for item in items if item.text][:3]
    if len(texts) < 2:
        raise Skipped("it reads no text")
    tasks = [replace(model.task("score"), query=Item(text=text)) for text in texts]
    alone = [answer_alone(model.adapter, items, each) for each in tasks]
    moved = max(distance(one, other) for one, other in zip(alone[0], alone[1], strict=True))
    assert moved > 0, f"the queries {texts[0]!r} and {texts[1]!r} give the same scores"
    for each, expected, shared in zip(tasks, alone, answer_together(model.adapter, items, tasks), strict=True):
        _same(model, expected, shared, f"beside other queries, {each.query.text if each.query else None!r}")


def what_is_passed_over_is_a_field(model: LoadedModel, items: Items) -> None:
    """`passed_over` gives a tuple with names of fields of `Task`, for every role."""
    for task in model.tasks():
        for role in ROLES:
            named = model.adapter.passed_over(replace(task, input_type=role))
            assert isinstance(named, tuple), f"passed_over gives {named!r}, no tuple"
            assert set(named) <= FIELDS, f"passed_over names {sorted(set(named) - FIELDS)}, which are no fields of Task"

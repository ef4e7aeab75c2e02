"""The checks of what serves or checks models beside families: runners, architectures and references.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from sie_core.catalog.info import describe
from sie_core.contracts import (
    COMPARED,
    ArchitectureRecord,
    ModelInfo,
    NoReferenceError,
    Reference,
    ReferenceModel,
    RunnerSpec,
)
from sie_kit.checks.adapter.outputs import check_output
from sie_kit.comparing import answer_alone, distance, tolerance
from sie_kit.loading import Items, LoadedModel
from sie_kit.outcomes import Skipped

INTERFACE = re.compile(r"[a-z][\w.\-]*/\d+(\.\d+)?")
TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
SETS = ("model_types", "features", "devices", "attention_backends", "fast_in")


def its_names_can_be_imported(part: RunnerSpec | ArchitectureRecord | Reference) -> None:
    """Every `"module:name"` of the registration names something that can be called."""
    fields = {name: getattr(part, name) for name in dir(part) if not name.startswith("_")}
    for field, value in fields.items():
        if not (isinstance(value, str) and TARGET.fullmatch(value)):
            continue
        try:
            found = resolve_name(value)
        except Exception as error:
            raise AssertionError(f"{field}: {value} cannot be imported: {type(error).__name__}: {error}") from error
        assert callable(found), f"{field}: {value} is {found!r:.60}, which cannot be called"
        if isinstance(part, Reference):
            _check_reference(value, found)


def _check_reference(name: str, found: Any) -> None:
    subclass = isinstance(found, type) and issubclass(found, ReferenceModel)
    assert subclass, f"{name} does not inherit from sie_core.contracts.ReferenceModel"
    lacking = sorted(getattr(found, "__abstractmethods__", ()))
    assert not lacking, f"{name} lacks the methods {', '.join(lacking)}"


def what_it_states_is_well_formed(part: RunnerSpec | Reference) -> None:
    """Sets are frozensets, an interface ends with its version, requirements are pip's, outputs are known ones."""
    sets = ("families", "gives") if isinstance(part, Reference) else SETS
    for name in sets:
        value = getattr(part, name)
        assert isinstance(value, frozenset), f"{name} is {value!r}, no frozenset"
        assert all(isinstance(each, str) for each in value), f"{name} holds other things than strings: {value!r}"
    if isinstance(part, RunnerSpec):
        assert isinstance(part.priority, int), f"priority is {part.priority!r}, no int"
        assert INTERFACE.fullmatch(part.interface), f"interface is {part.interface!r}, not like 'sie.runner/3'"
        return
    assert part.families, "families is empty: no model would be compared"
    assert part.gives, f"gives is empty: name what it computes, of {', '.join(COMPARED)}"
    assert part.gives <= set(COMPARED), f"gives names {sorted(part.gives - set(COMPARED))}; there are {COMPARED}"
    for requirement in part.requires:
        try:
            Requirement(requirement)
        except InvalidRequirement as error:
            raise AssertionError(f"requires: pip does not understand {requirement!r}: {error}") from error


NAMED_CHECKS: Sequence[Callable[[Any], None]] = (its_names_can_be_imported,)
STATED_CHECKS: Sequence[Callable[[Any], None]] = (its_names_can_be_imported, what_it_states_is_well_formed)


def the_runner_serves_and_computes_the_same(name: str, model: LoadedModel, plain: LoadedModel, items: Items) -> None:
    """With `SIE_RUNNER` set to it, the runner serves the model, and its outputs are those of the family without it."""
    notes = model.adapter.facts.notes
    assert notes.get("runner") == name, f"{name} was asked for and does not serve: {dict(notes)}"
    for task in model.tasks():
        mine, theirs = (answer_alone(each.adapter, items, task) for each in (model, plain))
        far = max(map(distance, mine, theirs))
        other = plain.adapter.facts.notes.get("runner", "the family's own")
        assert far <= 10 * tolerance(plain.adapter), f"{task.operation} is {far:.1e} off what {other} gives"


def the_reference_answers_each_item(reference: Reference, model: LoadedModel, items: Items) -> None:
    """The reference loads the model, gives no more than it registers, and answers each item as if it were alone."""
    if model.context is None:
        raise Skipped("the model was not loaded by the kit")
    target: type[ReferenceModel] = resolve_name(reference.target)
    info: ModelInfo = describe(model.resolved, model.adapter.facts, {}, available=True)
    try:
        loaded = target.load(model.context, info)
    except NoReferenceError as error:
        raise Skipped(f"{reference.name} {error}") from None
    assert loaded.gives <= reference.gives, f"it gives {sorted(loaded.gives)}, and registers {sorted(reference.gives)}"
    for task in model.tasks():
        try:
            together = list(loaded.answer(items, task))
        except NoReferenceError:
            continue
        assert len(together) == len(items), f"{len(together)} answers of {len(items)} items"
        for item, output in zip(items, together, strict=True):
            check_output(item, output, task)
            (alone,) = loaded.answer([item], task)
            far = distance(alone, output)
            assert far <= tolerance(model.adapter), f"{item.text!r} is answered otherwise in company, {far:.1e} off"

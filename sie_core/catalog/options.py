"""Checks options: those of a request against the family and the engine, those of a profile when it loads.

The keys of `engine_options` mean the same for every family; all others are the family's own. It must not know what any
option does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sie_core.catalog.engine_options import ENGINE_OPTIONS
from sie_core.catalog.wording import did_you_mean, short
from sie_core.contracts import (
    InputType,
    InvalidInput,
    ModelFamily,
    ModelLoadError,
    Operation,
    Option,
    OutputType,
    Profile,
    ResolvedModel,
    Truncate,
)


@dataclass(frozen=True, slots=True)
class EffectiveOptions:
    """The options of one request with the profile's below them, checked; None means nobody said."""

    profile: Profile
    """The profile whose `runtime` applies: the model's, or the one `options.profile` selects."""
    family: Mapping[str, Any] = field(default_factory=dict)
    """The family's own, for `Task.options`."""
    input_type: InputType | None = None
    instruction: str | None = None
    output_types: tuple[OutputType, ...] | None = None
    output_dtype: str | None = None
    truncate: Truncate | None = None
    dimensions: int | None = None


SELECT_PROFILE = "profile"
"""The key of a request's options that selects another profile's `runtime` of the same loaded model."""


def resolve_options(
    family: ModelFamily,
    model: ResolvedModel,
    request: Mapping[str, Any],
    operation: Operation = "encode",
    adapter_does: Operation | None = None,
) -> EffectiveOptions:
    """Lay a request's `options` over the profile's `runtime` and check each. A null means "not said".

    Args:
        family: The family that serves the model.
        model: The model, at its profile.
        request: What the client sent as `options`.
        operation: What the client asks for; of a profile's values, those of other operations are passed over.
        adapter_does: What the adapter does for it, where that is another operation: its options are the family's.

    Raises:
        InvalidInput: An option is unknown, of another operation, of the wrong type, out of range, or only read when the
            model loads; `param` is `options.<name>` and the message names what is allowed.
    """
    given = {str(name): value for name, value in request.items() if value is not None}
    profile = _select_profile(family, model, given.pop(SELECT_PROFILE, None))
    known = _Known.of(family, operation, adapter_does or operation)
    values = {name: value for name, value in profile.runtime.items() if value is not None and known.per_request(name)}
    for name, value in given.items():
        known.check(name, value)
    values.update(given)
    engine = {name: ENGINE_OPTIONS[name] for name in ENGINE_OPTIONS if name in values}
    return EffectiveOptions(
        profile=profile,
        family={name: value for name, value in values.items() if name not in engine},
        **{option.fills: _convert(name, values[name]) for name, option in engine.items()},
    )


def check_profile(family: ModelFamily, profile: Profile) -> tuple[str, ...]:
    """Check a profile's own options when its model loads; return the names of those `family` does not know.

    Unknown ones are passed over only where the config was not written for this family, and the caller reports them.

    Raises:
        ModelLoadError: `CONFIG`: a value is wrong, or the config names this family and an option it does not know.
    """
    declared = {option.name: option for option in family.options}
    ignored = []
    for part, values in (("loadtime", profile.loadtime), ("runtime", profile.runtime)):
        for name, value in values.items():
            problem: str | None = None
            if value is None:
                continue
            if name in declared:
                problem = value_problem(declared[name], value)
            elif part == "runtime" and name in ENGINE_OPTIONS:
                problem = _engine_problem(name, value)
            elif profile.adapter_path == family.id:
                every = [*(option.name for option in family.options), *ENGINE_OPTIONS]
                problem = f"is no option of the family {family.id!r}.{_listed(None, every)}"
            else:
                ignored.append(f"{part}.{name}")
                continue
            if problem is not None:
                raise ModelLoadError("CONFIG", f"Profile {profile.name!r}: {part}.{name} {problem}")
    return tuple(ignored)


def value_problem(option: Option, value: Any) -> str | None:
    """Say what is wrong with `value` as `option`, starting with the value; None where nothing is."""
    allowed = option.type if isinstance(option.type, tuple) else (option.type,)
    if not any(_is(value, kind) for kind in allowed):
        return f"is {short(value)}; allowed: {' or '.join(kind.__name__ for kind in allowed)}."
    if option.choices and value not in option.choices:
        return f"is {short(value)}; allowed: {', '.join(repr(choice) for choice in option.choices)}."
    if _is(value, float):
        if isinstance(value, float) and not math.isfinite(value):
            return f"is {value!r}; it must be finite."
        if option.minimum is not None and value < option.minimum:
            return f"is {short(value)}; the least allowed is {option.minimum:g}."
        if option.maximum is not None and value > option.maximum:
            return f"is {short(value)}; the most allowed is {option.maximum:g}."
    return None


def _is(value: Any, kind: type) -> bool:
    """Whether `value` is of `kind`, with `bool` no number and an `int` good for a `float`."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


@dataclass(frozen=True, slots=True)
class _Known:
    """The options of one family that one operation reads."""

    family: ModelFamily
    operation: Operation
    own: Mapping[str, Option]
    """The family's, load options included."""
    engine: frozenset[str]

    @classmethod
    def of(cls, family: ModelFamily, operation: Operation, adapter_does: Operation) -> _Known:
        """Gather them."""
        own = {each.name: each for each in family.options if not each.operations or adapter_does in each.operations}
        engine = frozenset(name for name, option in ENGINE_OPTIONS.items() if operation in option.operations)
        return cls(family, operation, own, engine)

    def per_request(self, name: str) -> bool:
        """Whether a request may set it."""
        return name in self.engine or (name in self.own and self.own[name].stage != "load")

    def check(self, name: str, value: Any) -> None:
        """Check one option of a request; values of the engine's own are checked as they are converted.

        Raises:
            InvalidInput: It is unknown, of another operation, only read at the load, or its value is wrong.
        """
        if name in self.engine:
            return
        param, option = f"options.{name[:64]}", self.own.get(name)
        if option is None:
            elsewhere = name in ENGINE_OPTIONS or any(name == each.name for each in self.family.options)
            of = f"{self.operation} with this model" if elsewhere else "this model"
            raise InvalidInput(f"{param} is no option of {of}.{self._named(name)}", param=param)
        if option.stage == "load":
            raise InvalidInput(
                f"{param} is read when the model loads and cannot change by request; a profile of the model's config "
                "sets it.",
                param=param,
            )
        problem = value_problem(option, value)
        if problem is not None:
            raise InvalidInput(f"{param} {problem}", param=param)

    def _named(self, name: str) -> str:
        own = (option.name for option in self.own.values() if option.stage != "load")
        return _listed(name, [*own, *self.engine])


def _select_profile(family: ModelFamily, model: ResolvedModel, name: Any) -> Profile:
    if name is None or name == model.profile.name:
        return model.profile
    profiles = model.config.profiles
    if not isinstance(name, str) or name not in profiles:
        raise InvalidInput(
            f"options.profile is {short(name)}; the profiles of {model.config.id} are {', '.join(profiles)}.",
            param="options.profile",
        )
    selected = profiles[name]
    try:
        check_profile(family, selected)
    except ModelLoadError as error:
        raise InvalidInput(str(error), param="options.profile") from None
    for option in family.options:
        if option.stage == "load" and _load_value(selected, option) != _load_value(model.profile, option):
            raise InvalidInput(
                f"The profile {name!r} loads the model with another {option.name}: address it as "
                f"{model.config.id}:{name}.",
                param="options.profile",
            )
    return selected


def _load_value(profile: Profile, option: Option) -> Any:
    return profile.runtime.get(option.name, profile.loadtime.get(option.name))


def _convert(name: str, value: Any) -> Any:
    try:
        return ENGINE_OPTIONS[name].check(value)
    except ValueError as allowed:
        param = f"options.{name}"
        raise InvalidInput(f"{param} is {short(value)}; allowed: {allowed}.", param=param) from None


def _engine_problem(name: str, value: Any) -> str | None:
    try:
        _convert(name, value)
    except InvalidInput as error:
        return error.message.partition(" ")[2]
    return None


def _listed(name: str | None, options: list[str]) -> str:
    known = sorted([*options, SELECT_PROFILE])
    return f"{did_you_mean(name, known) if name else ''} Known: {', '.join(known)}."

"""Checks options: those of a request against the family and the engine, those of a profile when it loads.

The keys of `engine_options` mean the same for every family; all others are the family's own. It must not know what any
option does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sie_core.catalog.engine_options import ENGINE_OPTIONS
from sie_core.catalog.wording import did_you_mean, short
from sie_core.contracts import (
    InputType,
    InvalidInput,
    ModelFamily,
    ModelLoadError,
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


def resolve_options(family: ModelFamily, model: ResolvedModel, request: Mapping[str, Any]) -> EffectiveOptions:
    """Lay a request's `options` over the profile's `runtime` and check each. A null means "not said".

    Raises:
        InvalidInput: An option is unknown, of the wrong type, out of range, or only read when the model loads;
            `param` is `options.<name>` and the message names what is allowed.
    """
    given = {str(name): value for name, value in request.items() if value is not None}
    profile = _select_profile(family, model, given.pop(SELECT_PROFILE, None))
    declared = {option.name: option for option in family.options}
    values = {
        name: value for name, value in profile.runtime.items() if value is not None and _per_request(declared, name)
    }
    for name, value in given.items():
        if name not in ENGINE_OPTIONS:
            _check_request_option(family, declared.get(name), name, value)
    values.update(given)
    return EffectiveOptions(
        profile=profile,
        family={name: value for name, value in values.items() if name not in ENGINE_OPTIONS},
        **{to: _convert(name, values[name], check) for name, (to, check) in ENGINE_OPTIONS.items() if name in values},
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
                problem = f"is no option of the family {family.id!r}.{_known(family)}"
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


def _per_request(declared: Mapping[str, Option], name: str) -> bool:
    if name in ENGINE_OPTIONS:
        return True
    return name in declared and declared[name].stage != "load"


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


def _check_request_option(family: ModelFamily, option: Option | None, name: str, value: Any) -> None:
    param = f"options.{name[:64]}"
    if option is None:
        raise InvalidInput(f"{param} is no option of this model.{_known(family, name)}", param=param)
    if option.stage == "load":
        raise InvalidInput(
            f"{param} is read when the model loads and cannot change by request; a profile of the model's config "
            "sets it.",
            param=param,
        )
    problem = value_problem(option, value)
    if problem is not None:
        raise InvalidInput(f"{param} {problem}", param=param)


def _convert(name: str, value: Any, check: Callable[[Any], Any]) -> Any:
    try:
        return check(value)
    except ValueError as allowed:
        param = f"options.{name}"
        raise InvalidInput(f"{param} is {short(value)}; allowed: {allowed}.", param=param) from None


def _engine_problem(name: str, value: Any) -> str | None:
    try:
        _convert(name, value, ENGINE_OPTIONS[name][1])
    except InvalidInput as error:
        return error.message.partition(" ")[2]
    return None


def _known(family: ModelFamily, name: str | None = None) -> str:
    own = [option.name for option in family.options if name is None or option.stage != "load"]
    known = sorted([*own, *ENGINE_OPTIONS, SELECT_PROFILE])
    return f"{did_you_mean(name, known) if name else ''} Known: {', '.join(known)}."

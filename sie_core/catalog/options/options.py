"""Checks options: those of a request against the family and the engine, those of a profile when it loads.

The keys of `engine_options` mean the same for every family; all others are the family's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from sie_core.catalog.options.engine_options import ENGINE_OPTIONS, SPELLINGS
from sie_core.catalog.options.postprocess_options import check_parameters, check_switch, is_on, profile_options
from sie_core.catalog.options.values import same, takes_text, value_problem
from sie_core.catalog.wording import did_you_mean, place_in, quote_it, short
from sie_core.contracts import (
    InputType,
    InvalidInput,
    ModelConfig,
    ModelFamily,
    ModelLoadError,
    Operation,
    Option,
    OutputType,
    Postprocessor,
    Profile,
    ResolvedModel,
    Truncate,
)

MISSPELT: Final = 0.75
"""An unknown option of a config that is at least this similar (`difflib` ratio) to one of the family's counts as its
misspelling.
"""


@dataclass(frozen=True, slots=True)
class EffectiveOptions:
    """A request's options merged over the profile's, checked; None means that neither gives one."""

    profile: Profile
    """The profile whose `runtime` applies: the model's, or the one `options.profile` selects."""
    family: Mapping[str, Any] = field(default_factory=dict)
    """Options of the family, for `Task.options`."""
    postprocessors: tuple[Postprocessor, ...] = ()
    """The postprocessors that are turned on."""
    input_type: InputType | None = None
    instruction: str | None = None
    output_types: tuple[OutputType, ...] | None = None
    output_dtype: str | None = None
    truncate: Truncate | None = None
    dimensions: int | None = None
    lora: str | None = None
    ignored: tuple[str, ...] = ()
    """Options of the request that only other operations or families read."""


NO_POSTPROCESSORS: Mapping[str, Postprocessor] = MappingProxyType({})
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
SELECT_PROFILE = "profile"
"""The key of a request's options that selects another profile's `runtime` of the same loaded model."""


def resolve_options(
    family: ModelFamily,
    model: ResolvedModel,
    request: Mapping[str, Any],
    operation: Operation = "encode",
    adapter_does: Operation | None = None,
    postprocessors: Mapping[str, Postprocessor] = NO_POSTPROCESSORS,
    wishes: Mapping[str, Any] = NO_OPTIONS,
    demands: Mapping[str, Any] = NO_OPTIONS,
    *,
    elsewhere: Collection[str] = (),
    takes_lora: bool = True,
) -> EffectiveOptions:
    """Lay a request's `options` over the profile's `runtime` and check each; null counts as absent.

    Args:
        family: The family that serves the model.
        model: The model, at its profile.
        request: The client's `options`.
        operation: The client's operation; a profile's options of other operations are ignored.
        adapter_does: The adapter's operation, if it differs; the profile's options for it apply then.
        postprocessors: All that are installed, by name.
        wishes: Further options, which those of the request override; unknown ones are ignored.
        demands: Further options, which override those of the request; unknown ones are refused.
        elsewhere: The names of all families' options; those that this family does not read are ignored.
        takes_lora: Whether the model takes LoRA adapters; otherwise no message suggests the option.

    Raises:
        InvalidInput: An option is unknown, of the wrong type, out of range, or only read at load, or a demand belongs
            to another operation or family. `param` is `options.<name>` and the message names the allowed values.
    """
    given = _one_spelling({str(name): value for name, value in request.items()})
    profile = _select_profile(family, model, given.pop(SELECT_PROFILE, None), postprocessors)
    known = _Known.of(family, operation, adapter_does or operation, postprocessors, elsewhere, takes_lora)
    runtime = _one_spelling(profile.runtime)
    values = {name: value for name, value in runtime.items() if known.per_request(name)}
    ignored = [name for name in given if known.reads_elsewhere(name)]
    given = {name: value for name, value in given.items() if name not in ignored}
    given = {name: value for name, value in wishes.items() if known.per_request(name)} | given | dict(demands)
    for name, value in given.items():
        known.check(name, value)
        if name in postprocessors:
            check_switch(postprocessors[name], value, profile)
    values.update(given)
    engine = {name: ENGINE_OPTIONS[name] for name in ENGINE_OPTIONS if name in values}
    return EffectiveOptions(
        profile=profile,
        family={name: value for name, value in values.items() if name not in engine and name not in postprocessors},
        postprocessors=tuple(each for name, each in postprocessors.items() if is_on(values.get(name))),
        ignored=tuple(ignored),
        **{option.fills: _convert(name, values[name]) for name, option in engine.items()},
    )


def check_profile(
    family: ModelFamily,
    profile: Profile,
    postprocessors: Mapping[str, Postprocessor] = NO_POSTPROCESSORS,
    config: ModelConfig | None = None,
    elsewhere: Collection[str] = (),
) -> tuple[str, ...]:
    """Check a profile's options when its model loads; return the names of unknown ones, for the caller to report.

    Unknown options are accepted only if the config was written for another family: it names another adapter, or it
    names none and the option is not a misspelling of one of this family's. The error names `config` with the line;
    `elsewhere` holds the names of all families' options.

    Raises:
        ModelLoadError: `CONFIG`: a value is wrong, or the config names this family and an option it does not know.
    """
    declared = {option.name: option for option in (*family.options, *profile_options(postprocessors.values()))}
    ignored = check_parameters(profile, postprocessors.values())
    for part, values in (("loadtime", profile.loadtime), ("runtime", profile.runtime)):
        for written, value in values.items():
            name = SPELLINGS.get(written, written)
            problem: str | None = None
            text = False
            if value is None:
                continue
            if name in declared:
                problem, text = value_problem(declared[name], value), takes_text(declared[name])
            elif part == "runtime" and name in ENGINE_OPTIONS:
                problem, text = _engine_problem(name, value), ENGINE_OPTIONS[name].text
            elif profile.adapter_path == family.id or (
                profile.adapter_path is None
                and name not in elsewhere
                and get_close_matches(name, [*declared, *ENGINE_OPTIONS], 1, MISSPELT)
            ):
                problem = f"is no option of the family {family.id!r}.{_listed(name, [*declared, *ENGINE_OPTIONS])}"
            else:
                ignored.append(f"{part}.{name}")
                continue
            if problem is not None:
                quoted = quote_it(value) if text else ""
                where = "" if config is None else place_in(config.source, config.text, written)
                raise ModelLoadError("CONFIG", f"{where}Profile {profile.name!r}: {part}.{name} {problem}{quoted}")
    return tuple(ignored)


@dataclass(frozen=True, slots=True)
class _Known:
    """The options that one operation reads with one model."""

    operation: Operation
    own: Mapping[str, Option]
    """Options of the family and the postprocessors, including those of the load."""
    engine: frozenset[str]
    every: frozenset[str]
    """The same, plus those of other operations and families."""
    takes_lora: bool

    @classmethod
    def of(
        cls,
        family: ModelFamily,
        operation: Operation,
        adapter_does: Operation,
        postprocessors: Mapping[str, Postprocessor],
        elsewhere: Collection[str],
        takes_lora: bool,
    ) -> _Known:
        """Collect the options of an operation with a model."""
        theirs = {each.name: each for each in profile_options(postprocessors.values())}
        every = {each.name: each for each in family.options} | theirs
        own = {
            name: option
            for name, option in every.items()
            if not option.operations or (operation if name in theirs else adapter_does) in option.operations
        }
        engine = frozenset(name for name, option in ENGINE_OPTIONS.items() if operation in option.operations)
        return cls(operation, own, engine, frozenset({*every, *ENGINE_OPTIONS, *elsewhere}), takes_lora)

    def per_request(self, name: str) -> bool:
        """Whether a request may set `name`."""
        return name in self.engine or (name in self.own and self.own[name].stage != "load")

    def reads_elsewhere(self, name: str) -> bool:
        """Whether only other operations or families read `name`."""
        return name in self.every and name not in self.engine and name not in self.own

    def check(self, name: str, value: Any) -> None:
        """Check one option of a request; values of engine options are checked when they are converted.

        Raises:
            InvalidInput: It is unknown, only read at the load, or its value is wrong.
        """
        if name in self.engine:
            return
        param, option = f"options.{name[:64]}", self.own.get(name)
        if option is None:
            of = f"{self.operation} with this model" if name in self.every else "this model"
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
        return _listed(name, [*own, *(self.engine if self.takes_lora else self.engine - {"lora"})])


def _select_profile(
    family: ModelFamily, model: ResolvedModel, name: Any, postprocessors: Mapping[str, Postprocessor]
) -> Profile:
    if name is None or same(name, model.profile.name):
        return model.profile
    profiles = model.config.profiles
    if not isinstance(name, str) or name not in profiles:
        raise InvalidInput(
            f"options.profile is {short(name)}; the profiles of {model.config.id} are {', '.join(profiles)}.",
            param="options.profile",
        )
    selected = profiles[name]
    try:
        check_profile(family, selected, postprocessors)
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


def _one_spelling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Rename options with several names to one, and drop those that are null.

    Raises:
        InvalidInput: Two of the names have different values.
    """
    found: dict[str, Any] = {}
    for written, value in options.items():
        name = SPELLINGS.get(written, written)
        if value is None:
            continue
        if name in found and not same(found[name], value):
            raise InvalidInput(
                f"options.{name} is {short(found[name])} and options.{written} {short(value)}: both mean the same; "
                "leave one out.",
                param=f"options.{written}",
            )
        found[name] = value
    return found


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

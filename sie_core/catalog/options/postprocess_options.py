"""The options of postprocessors: one that enables it, and one of a profile's `loadtime` with its parameters.

They belong to no family, and no adapter gets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sie_core.catalog.options.values import same, value_problem
from sie_core.catalog.wording import did_you_mean, short
from sie_core.contracts import InvalidInput, ModelLoadError, Option, Postprocessor, Profile


def config_name(postprocessor: Postprocessor) -> str:
    """Name the `loadtime` option that holds a postprocessor's parameters."""
    return f"{postprocessor.name}_config"


def is_on(value: Any) -> bool:
    """Whether a value of the option, true or a map, turns the postprocessor on."""
    return value is not None and value is not False


def profile_options(postprocessors: Iterable[Postprocessor]) -> Iterator[Option]:
    """Describe both options of each; an entry of a profile's map is checked by `check_parameters`."""
    for each in postprocessors:
        made = f"{each.target} of {each.source}"
        yield Option(
            each.name, "finish", (bool, dict), description=f"Make {made}; true or {{}}.", operations=("encode",)
        )
        config = config_name(each)
        yield Option(
            config, "load", dict, description=f"Parameters of `{each.name}`, in `loadtime`.", operations=("encode",)
        )


def parameters_of(postprocessor: Postprocessor, profile: Profile) -> Mapping[str, Any]:
    """Return a postprocessor's parameters from a profile; empty if the profile has none."""
    return profile.loadtime.get(config_name(postprocessor)) or {}


def check_switch(postprocessor: Postprocessor, value: Any, profile: Profile) -> None:
    """Check the value that turns a postprocessor on: a map may only repeat the profile's parameters.

    Raises:
        InvalidInput: An entry differs; all vectors of an index need the same parameters.
    """
    for name in _other(postprocessor, value, profile):
        raise InvalidInput(
            f"options.{postprocessor.name}.{name} is {short(value[name])}; parameters are those of the profile's "
            f"loadtime.{config_name(postprocessor)}, so that vectors can be compared. Give true.",
            param=f"options.{postprocessor.name}",
        )


def check_parameters(profile: Profile, postprocessors: Iterable[Postprocessor]) -> list[str]:
    """Check the parameters a profile gives; return the names of entries of its `runtime` maps that nothing reads.

    Raises:
        ModelLoadError: `CONFIG`: a parameter is unknown, or its value is wrong.
    """
    unread = []
    for each in postprocessors:
        config = profile.loadtime.get(config_name(each))
        if isinstance(config, dict):
            _check_config(each, config, profile)
        unread += [f"runtime.{each.name}.{name}" for name in _other(each, profile.runtime.get(each.name), profile)]
    return unread


def _check_config(postprocessor: Postprocessor, config: Mapping[str, Any], profile: Profile) -> None:
    known = {option.name: option for option in postprocessor.parameters}
    for name, value in config.items():
        where = f"Profile {profile.name!r}: loadtime.{config_name(postprocessor)}.{short(name).strip(chr(39))}"
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise ModelLoadError("CONFIG", f"{where} is no parameter.{hint} Known: {', '.join(known)}.")
        problem = value_problem(known[name], value)
        if problem is not None:
            raise ModelLoadError("CONFIG", f"{where} {problem}")


def _other(postprocessor: Postprocessor, value: Any, profile: Profile) -> list[str]:
    """List the entries of a request's map that differ from the profile's parameters."""
    if not isinstance(value, dict):
        return []
    parameters = parameters_of(postprocessor, profile)
    return [str(name) for name in value if name not in parameters or not same(parameters[name], value[name])]

"""Keyword arguments declared by a `TypedDict`: their defaults, their names in `help()`, and the error for any other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from sie_sdk.settings import DEFAULTS

Function = TypeVar("Function", bound=Callable[..., Any])
Settings = TypeVar("Settings", bound=Mapping[str, object])


def filled(kind: type[Settings], given: Mapping[str, object], call: str) -> Settings:
    """Return the keyword arguments of a call with the default of each that was not given.

    Raises:
        TypeError: One is none of `kind`.
    """
    names = _annotations(kind)
    for name in given:
        if name not in names:
            raise TypeError(f"{call}() takes no argument {name!r}; it takes {', '.join(sorted(names))}")
    return cast("Settings", {name: given.get(name, DEFAULTS.get(name)) for name in names})


def keywords(kind: type[Any]) -> Callable[[Function], Function]:
    """Show the arguments of `kind` where a function has `**settings`: to `help()`, notebooks and `inspect`."""

    def shown(function: Function) -> Function:
        signature = inspect.signature(function)
        plain = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS.get(name), annotation=annotation)
            for name, annotation in _annotations(kind).items()
        ]
        function.__signature__ = signature.replace(parameters=[*plain, *named])  # type: ignore[attr-defined]
        return function

    return shown


def _annotations(kind: type[Any]) -> dict[str, str]:
    """Return the names of a `TypedDict` and how their types are written."""
    return {name: getattr(each, "__forward_arg__", str(each)) for name, each in kind.__annotations__.items()}

"""Compares the methods of an object that a plugin hands over with those of its interface.

A method that lacks a parameter is found here, before the engine calls it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class UnfitObject(Exception):
    """An object does not have the methods of its interface; the message says which, as the end of a sentence."""


def require(made: Any, interface: type, *, partly: bool = False) -> None:
    """Raise `UnfitObject` unless the object has the members of the interface, and its methods take what these take.

    Args:
        made: The object.
        interface: A Protocol or an abstract class.
        partly: Whether members may be missing, which their use then finds out.
    """
    if problems := list(mismatches(made, interface, partly=partly)):
        raise UnfitObject("; ".join(problems))


def mismatches(made: Any, interface: type, *, partly: bool = False) -> Iterator[str]:
    """List the members of a Protocol or an abstract class that an object, or a class, lacks or defines otherwise."""
    for name, member in _members(interface).items():
        theirs = getattr(made, name, None)
        if partly and theirs is None:
            continue
        if not callable(member):
            if not isinstance(made, type) and not hasattr(made, name):
                yield f"it has no `{name}`"
        elif not callable(theirs):
            yield f"it has no method `{name}`"
        else:
            positional, named = _arguments(member)
            if isinstance(made, type) and inspect.isfunction(theirs):
                positional.insert(0, "self")
            if fault := unfit(theirs, positional, named):
                yield f"its `{name}` {fault}"


def unfit(call: Callable[..., Any], positional: Sequence[str], named: Iterable[str] = ()) -> str | None:
    """Say why `call` cannot be called with these arguments, as the end of a sentence; None if it can be.

    Args:
        call: A function, a bound method or a class.
        positional: Names of the arguments that are passed by position.
        named: Names of those that are passed by name.
    """
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # of C, without a signature
        return None
    named = tuple(named)
    try:
        signature.bind(*positional, **dict.fromkeys(named))
    except TypeError as error:
        places = sum(each.kind in _POSITIONAL for each in signature.parameters.values())
        lacking = [*positional[places:], *(each for each in named if each not in signature.parameters)]
        if lacking:
            return f"lacks the parameter{'s' * (len(lacking) > 1)} {', '.join(map(repr, lacking))}"
        return f"takes {signature} and is called otherwise: {error}"
    return None


def _members(interface: type) -> dict[str, Any]:
    """Return the public members that an interface declares: functions and class methods, and None for attributes."""
    members: dict[str, Any] = {}
    for each in reversed(interface.__mro__):
        if each.__module__ in ("builtins", "abc", "typing"):
            continue
        members |= dict.fromkeys(inspect.get_annotations(each))
        for name, member in vars(each).items():
            if not name.startswith("_"):
                members[name] = getattr(each, name) if callable(member) or isinstance(member, classmethod) else None
    return {name: member for name, member in members.items() if not name.startswith("_")}


def _arguments(member: Callable[..., Any]) -> tuple[list[str], list[str]]:
    parameters = list(inspect.signature(member).parameters.values())
    if not inspect.ismethod(member):
        parameters = parameters[1:]  # self
    positional = [each.name for each in parameters if each.kind in _POSITIONAL]
    return positional, [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]

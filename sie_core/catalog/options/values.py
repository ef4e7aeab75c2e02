"""Checks the value of an option against its type, choices and range."""

from __future__ import annotations

import math
from typing import Any

from sie_core.catalog.wording import short
from sie_core.contracts import Option

_WORDS = {type(None): "null", dict: "map"}


def kinds(option: Option) -> str:
    """List the types that an option allows, for a message."""
    allowed = option.type if isinstance(option.type, tuple) else (option.type,)
    return " or ".join(_WORDS.get(kind, kind.__name__) for kind in allowed)


def takes_text(option: Option) -> bool:
    """Whether an option may be a text."""
    return option.type is str or (isinstance(option.type, tuple) and str in option.type)


def value_problem(option: Option, value: Any) -> str | None:
    """Describe the fault of `value` for `option`, the value first; None if it is valid."""
    allowed = option.type if isinstance(option.type, tuple) else (option.type,)
    if not any(_is(value, kind) for kind in allowed):
        return f"is {short(value)}; allowed: {kinds(option)}."
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


def same(one: Any, other: Any) -> bool:
    """Whether two values of an option are equal; arrays, which no option takes, count as different."""
    try:
        return bool(one == other)
    except ValueError:  # NumPy compares element by element, and an array has no single truth value
        return False


def _is(value: Any, kind: type) -> bool:
    """Whether `value` is of `kind`; a `bool` is no number, and an `int` may replace a `float`."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)

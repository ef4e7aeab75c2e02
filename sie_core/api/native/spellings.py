"""Choices that clients may spell in several ways: one spelling is enough, and two must agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

from sie_core.contracts import ROLES, InputType, InvalidInput, Truncate

Value = TypeVar("Value")

_AS_INPUT_TYPE: Final[Mapping[bool | None, InputType]] = {True: "query", False: "document"}
_AS_TRUNCATE: Final[Mapping[str | None, Truncate]] = {"truncate_text": "end", "error": "error"}


class PromptChoice(NamedTuple):
    """What the name of a prompt asks for, as fields of an `InferenceRequest`."""

    input_type: InputType | None = None
    wishes: Mapping[str, Any] = {}
    demands: Mapping[str, Any] = {}


def prompt_named(name: str | None) -> PromptChoice:
    """Read the name of a prompt, as other APIs have it.

    `query` and `document` do what `input_type` does. Another name of `ROLES` is that prompt of the weights where they
    have it, else the one of its role; any other name must be a prompt of the weights.
    """
    if name is None:
        return PromptChoice()
    role = ROLES.get(name)
    if role is None:
        return PromptChoice(demands={"prompt_name": name})
    return PromptChoice(role, {} if name == role else {"prompt_name": name})


def input_type_of(
    input_type: InputType | None, is_query: bool | None, options: Mapping[str, Any], prefix: str
) -> InputType | None:
    """Find the one input type that `input_type`, `is_query` and `options.is_query` agree on.

    Args:
        input_type: The field of that name.
        is_query: The field of that name.
        options: The options, perhaps with an `is_query`.
        prefix: The path of the fields in the body, e.g. `params.`.

    Raises:
        InvalidInput: They contradict each other.
    """
    spellings = {
        f"{prefix}input_type": input_type,
        f"{prefix}is_query": _AS_INPUT_TYPE.get(is_query),
        f"{prefix}options.is_query": _AS_INPUT_TYPE.get(_plain(options.get("is_query"), bool)),
    }
    return _agreed(spellings)


def truncate_of(truncate: Truncate | None, options: Mapping[str, Any], prefix: str) -> Truncate | None:
    """Find the one choice that `truncate` and `options.overflow_policy` agree on.

    Raises:
        InvalidInput: They contradict each other.
    """
    spellings = {
        f"{prefix}truncate": truncate,
        f"{prefix}options.overflow_policy": _AS_TRUNCATE.get(_plain(options.get("overflow_policy"), str)),
    }
    return _agreed(spellings)


def _plain(value: Any, kind: type[Value]) -> Value | None:
    """Return `value` where it has exactly this type; the backend refuses any other."""
    return value if type(value) is kind else None


def _agreed(spellings: Mapping[str, Value | None]) -> Value | None:
    given = {name: value for name, value in spellings.items() if value is not None}
    if len(set(given.values())) > 1:
        said = " and ".join(f"`{name}` says {value!r}" for name, value in given.items())
        raise InvalidInput(f"{said}: give one of them.", param=next(iter(given)))
    return next(iter(given.values()), None)

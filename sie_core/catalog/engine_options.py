"""The keys of `options` that mean the same for every family, and what each may be.

They never reach an adapter as options: each fills a field of its own. What the fields do is the engine's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from sie_core.contracts import InputType, OutputType, Truncate


def _input_type(value: Any) -> InputType:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return "query" if value else "document"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def _size(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("a whole number from 1")
    return value


def _output_types(value: Any) -> tuple[OutputType, ...]:
    known = get_args(OutputType)
    if not isinstance(value, list | tuple) or not value or any(each not in known for each in value):
        raise ValueError(f"a list of {', '.join(known)}")
    return tuple(value)


def _overflow(value: Any) -> Truncate | None:
    policies: dict[Any, Truncate | None] = {"default": None, "truncate_text": "end", "error": "error"}
    if not isinstance(value, str) or value not in policies:
        raise ValueError(f"one of {', '.join(policies)}")
    return policies[value]


ENGINE_OPTIONS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "is_query": ("input_type", _input_type),
    "instruction": ("instruction", _text),
    "output_types": ("output_types", _output_types),
    "output_dtype": ("output_dtype", _text),
    "overflow_policy": ("truncate", _overflow),
    "dimensions": ("dimensions", _size),
}
"""Keys of `options` that mean the same for every family: the field of `EffectiveOptions` each fills, and its check."""

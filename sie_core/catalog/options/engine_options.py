"""The keys of `options` that mean the same for every family, and what each may be.

No adapter gets them as options: each fills a field of `EffectiveOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from sie_core.catalog.configs.ids import ID_RULE, is_model_id
from sie_core.contracts import InputType, Operation, OutputType, Truncate


@dataclass(frozen=True, slots=True)
class EngineOption:
    """A key of `options` that means the same for every family."""

    fills: str
    """The field of `EffectiveOptions` it fills."""
    check: Callable[[Any], Any]
    """Returns the field's value, or raises ValueError naming the allowed values."""
    operations: tuple[Operation, ...] = get_args(Operation)
    text: bool = False
    """Whether it is a text."""


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
    names = value if isinstance(value, list | tuple) else ()
    if not names or not all(isinstance(each, str) and each in known for each in names):
        raise ValueError(f"a list of {', '.join(known)}")
    return tuple(names)


def _overflow(value: Any) -> Truncate | None:
    policies: dict[Any, Truncate | None] = {"default": None, "truncate_text": "end", "error": "error"}
    if not isinstance(value, str) or value not in policies:
        raise ValueError(f"one of {', '.join(policies)}")
    return policies[value]


def _lora(value: Any) -> str:
    if not isinstance(value, str) or not is_model_id(value):
        raise ValueError(f"the name of a LoRA adapter: {ID_RULE}")
    return value


SPELLINGS: Mapping[str, str] = {"lora_id": "lora"}
"""Other names of engine options."""

ENGINE_OPTIONS: Mapping[str, EngineOption] = {
    "is_query": EngineOption("input_type", _input_type, ("encode",)),
    "instruction": EngineOption("instruction", _text, text=True),
    "output_types": EngineOption("output_types", _output_types, ("encode", "score")),
    "output_dtype": EngineOption("output_dtype", _text, ("encode",), text=True),
    "overflow_policy": EngineOption("truncate", _overflow, text=True),
    "lora": EngineOption("lora", _lora, text=True),
    "dimensions": EngineOption("dimensions", _size, ("encode", "score")),
}
"""Every such key. For `score`, `output_types` and `dimensions` select the vectors to compare."""

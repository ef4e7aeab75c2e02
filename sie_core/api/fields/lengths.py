"""The fields by which other APIs say how much of a text is read, and which end of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar

from pydantic import Field, field_validator

from sie_core.api.fields.body import DialectBody
from sie_core.contracts import InvalidInput, Truncate

Value = TypeVar("Value")

_SIDES: Final[Mapping[str, Truncate]] = {"left": "start", "right": "end"}
_OWN_LENGTH: Final = -1
"""What vLLM's clients send for the length that the model takes."""


class PromptLength(DialectBody):
    """vLLM's fields for the length of a text, or of a query and a document together."""

    truncate_prompt_tokens: int | None = Field(
        default=None,
        ge=-1,
        description="vLLM's: how many tokens are read, special ones included; -1 and absent: what the model takes.",
    )
    truncation_side: Literal["left", "right"] | None = Field(
        default=None, description="vLLM's: which end of a text that is too long is cut; absent: `right`."
    )

    @field_validator("truncate_prompt_tokens")
    @classmethod
    def _some(cls, value: int | None) -> int | None:
        if value == 0:
            raise ValueError("must be at least 1, or -1 for what the model takes")
        return value


class PairLength(PromptLength):
    """These, and Cohere's fields for the length of a query and of each document."""

    max_tokens_per_query: int | None = Field(
        default=None, ge=1, description="Tokens of the query that are read; absent: what the model takes."
    )
    max_tokens_per_doc: int | None = Field(
        default=None, ge=1, description="Tokens of each document that are read; absent: what the model takes."
    )


def length_demands(body: PromptLength) -> dict[str, Any]:
    """Return the option that cuts texts to a number of tokens; a model that does not have it refuses it."""
    most = body.truncate_prompt_tokens
    return {} if most in (None, _OWN_LENGTH) else {"max_seq_length": most}


def truncation_of(body: PromptLength, others: Mapping[str, Truncate | None]) -> Truncate | None:
    """Say where texts that are too long are cut; None leaves it to the model.

    Args:
        body: With vLLM's fields.
        others: What the body's other fields for it say, by their names.

    Raises:
        InvalidInput: Two of them contradict each other.
    """
    side = None if body.truncation_side is None else _SIDES[body.truncation_side]
    return one_of({**others, "truncation_side": side})


def one_of(said: Mapping[str, Value | None]) -> Value | None:
    """Return the value on which the fields that have one agree; None where none has.

    Raises:
        InvalidInput: Two of them contradict each other.
    """
    one, first = "", None
    for name, value in said.items():
        if first is None:
            one, first = name, value
        elif value not in (None, first):
            raise InvalidInput(f"`{one}` means {first!r} and `{name}` means {value!r}: give one of them.", param=one)
    return first

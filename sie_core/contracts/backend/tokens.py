"""Tokens of texts, and texts of tokens, by a model's own tokenizer. No forward pass is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Protocol, runtime_checkable

from sie_core.contracts.backend.requests import AT_ONCE, LoadWait


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a text."""

    id: int
    text: str
    """The part of the text that the token covers; for a special token its name."""
    special: bool = False
    """Whether the tokenizer added it to the text."""
    _: KW_ONLY
    start: int | None = None
    """First character in the text; None if the token covers no text."""
    stop: int | None = None
    """End in the text, exclusive."""


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """Texts whose tokens a client asks for: uncut, and without prompts."""

    model: str
    texts: Sequence[str]
    request_id: str
    _: KW_ONLY
    special: bool = True
    """Whether the special tokens around each text are wanted."""
    most: int | None = None
    """Tokens listed per text, from the start; None for all."""
    deadline: float | None = None
    """`time.monotonic()` seconds after which the answer is useless."""
    load_wait: LoadWait = AT_ONCE


@runtime_checkable
class TokenizingBackend(Protocol):
    """An `InferenceBackend` that can tokenize; other backends refuse requests that need tokens."""

    async def tokenize(self, request: TokenizeRequest) -> Sequence[Sequence[Token]]:
        """List the tokens of each text. Called on the event loop.

        Raises:
            InferenceError: As `InferenceBackend.infer`; `INVALID_INPUT` about `model` if it shows no tokens.
        """
        ...


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """Token ids whose texts a client asks for."""

    model: str
    ids: Sequence[Sequence[int]]
    """Token ids per text; none negative."""
    request_id: str
    _: KW_ONLY
    special: bool = False
    """Whether special tokens are written."""
    deadline: float | None = None
    """`time.monotonic()` seconds after which the answer is useless."""
    load_wait: LoadWait = AT_ONCE


@runtime_checkable
class DecodingBackend(Protocol):
    """An `InferenceBackend` that has the tokenizers at hand, the way back included."""

    async def decode(self, request: DecodeRequest) -> Sequence[str]:
        """Write the text of each list of ids. Called on the event loop.

        Raises:
            InferenceError: As `InferenceBackend.infer`; `INVALID_INPUT` about `model` if it cannot decode, about
                `ids[0]` if the tokenizer has no such token.
        """
        ...

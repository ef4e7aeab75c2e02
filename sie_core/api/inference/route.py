"""An inference route as a value: its paths, its schemas and its operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

from sie_core.api.body.body import RawBody
from sie_core.api.body.pieces import Content
from sie_core.api.body.reply_body import size_of
from sie_core.api.context import Api
from sie_core.api.http.envelopes import Dialect
from sie_core.api.inference.call import Call
from sie_core.api.openapi.examples import Example
from sie_core.contracts import InferenceBackend, InferenceReply, InferenceRequest, InvalidInput, TokenizingBackend

Body = TypeVar("Body", bound=BaseModel)
NO_TOKENIZERS: Final = "This server has no tokenizers: the models run elsewhere. Ask the server that runs them."


def infer(backend: InferenceBackend, body: Any, asked: InferenceRequest) -> Awaitable[InferenceReply]:
    """Ask for inference."""
    return backend.infer(asked)


def infer_token_ids(refusal: str) -> Callable[[InferenceBackend, Any, InferenceRequest], Awaitable[InferenceReply]]:
    """Ask for inference, but refuse token ids with `refusal` where the model does not take them."""

    async def run(backend: InferenceBackend, body: Any, asked: InferenceRequest) -> InferenceReply:
        given = any(item.token_ids is not None for item in asked.items)
        if given and not (await backend.describe(asked.model)).accepts_token_ids:
            raise InvalidInput(refusal, param="items")
        return await backend.infer(asked)

    return run


def tokenizing(backend: InferenceBackend) -> TokenizingBackend:
    """Return `backend` as one that tokenises.

    Raises:
        InvalidInput: It has no tokenizers.
    """
    if not isinstance(backend, TokenizingBackend):
        raise InvalidInput(NO_TOKENIZERS)
    return backend


def _same_name(param: str, body: BaseModel) -> str:
    return param


@dataclass(frozen=True, slots=True)
class Operation(Generic[Body]):
    """How a body becomes a request to the backend, and the backend's answer the body of a reply."""

    body: type[Body]
    """The schema of the request's body."""
    ask: Callable[[Call, Body], Any]
    """Makes the request to the backend: an `InferenceRequest`, or another with a `model` that `run` takes."""
    write: Callable[[Call, Body, Any], Content]
    """Writes the reply's body."""
    field_name: Callable[[str, Body], str] = _same_name
    """Gives the body's name for a field of the request, e.g. `documents[3]` for `items[3].text`."""
    run: Callable[[InferenceBackend, Body, Any], Awaitable[Any]] = infer
    """Has the backend answer."""
    size: Callable[[Any], int] = size_of
    """About how many bytes the backend's answer has; a large one is written on a thread."""
    float_bytes: Callable[[Any], float] | None = None
    """What a float of the backend's vectors becomes in the reply to a body, in bytes, where clients choose its form."""
    dialect: Dialect | None = None
    """Whose errors clients read, where it is not the dialect of the path."""


Choose = Callable[[Api, Call, RawBody], Awaitable[Operation[Any]]]
"""Chooses the operation of a request by its body, which is not yet parsed."""


@dataclass(frozen=True, slots=True)
class Route:
    """One inference route, as the handler answers it and OpenAPI describes it."""

    paths: tuple[str, ...]
    """`{model:path}` or another convertor of `model` stands for the model, where the path names it."""
    name: str
    about: str
    body: type[BaseModel]
    """The schema that OpenAPI shows for the request."""
    reply: type[BaseModel]
    operation: Operation[Any] | Choose
    dialect: Dialect
    tag: str
    """One of `openapi.purposes.PURPOSES`."""
    examples: tuple[Example, ...] = ()
    error: type[BaseModel] | None = None
    """The schema of an error, where it is not the envelope's alone."""
    msgpack: bool = False
    """Whether bodies and replies may be msgpack."""
    waits: bool = True
    """Whether a client that does not ask for a wait waits `SIE_MODEL_WAIT_S` seconds for any load, or only for one that
    is predicted to end within `SIE_NATIVE_LOAD_WAIT_S`."""

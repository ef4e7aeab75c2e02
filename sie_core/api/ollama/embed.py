"""`POST /api/embed` and `/api/embeddings`: Ollama's embeddings over `encode`."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from sie_core.api.body.body import kind_of
from sie_core.api.body.embedding_types import Vector, of_unit_length
from sie_core.api.body.json_body import Entries, write_json
from sie_core.api.body.pieces import Content
from sie_core.api.body.reply_body import read_item, size_of
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route
from sie_core.api.native.item_schema import check_item_size
from sie_core.api.ollama.schema import (
    OllamaEmbedBody,
    OllamaEmbeddingsBody,
    OllamaEmbeddingsReply,
    OllamaEmbedReply,
)
from sie_core.api.openai.embedding_input import param_of, read_input
from sie_core.api.openapi.examples import MODEL, Example
from sie_core.contracts import InferenceReply, InferenceRequest, InvalidInput, Item, Truncate
from sie_core.logs import request_fields

_NS = 1_000_000
"""Nanoseconds of a millisecond."""


def embed_request(call: Call, body: OllamaEmbedBody) -> InferenceRequest:
    """Ask for the vectors of texts.

    Raises:
        InvalidInput: An input is wrong.
    """
    items = read_input(body.input, call.settings.max_item_text_bytes)
    if any(item.text is None for item in items):
        raise InvalidInput(f"`input` must be a text or a list of texts, not {kind_of(body.input)}.", param="input")
    truncate: Truncate | None = None if body.truncate is None else "end" if body.truncate else "error"
    return _request(call, body.model, items, truncate, body.dimensions)


def embed_field(param: str, body: OllamaEmbedBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    return param_of(param, body.input) if param.startswith("items") else _field(param)


def embed_reply(call: Call, body: OllamaEmbedBody, reply: InferenceReply) -> Content:
    """Write the vectors, each of unit length, as Ollama has them."""
    fields = {
        "model": body.model,
        "embeddings": Entries(map(of_unit_length, _vectors(reply))),
        "total_duration": int(reply.timing.total_ms * _NS),
        "load_duration": 0,
        "prompt_eval_count": reply.usage.input_tokens,
    }
    return write_json(fields, size_of(reply))


def prompt_request(call: Call, body: OllamaEmbeddingsBody) -> InferenceRequest:
    """Ask for the vector of one text.

    Raises:
        InvalidInput: It is too large.
    """
    check_item_size(body.prompt, None, call.settings.max_item_text_bytes, "prompt")
    return _request(call, body.model, [Item(text=body.prompt)], None, None)


def prompt_field(param: str, body: OllamaEmbeddingsBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    return "prompt" if param.startswith("items") else _field(param)


def prompt_reply(call: Call, body: OllamaEmbeddingsBody, reply: InferenceReply) -> bytes:
    """Write the vector as the model gives it."""
    (vector,) = _vectors(reply)
    return orjson.dumps({"embedding": vector}, option=orjson.OPT_SERIALIZE_NUMPY)


def _request(
    call: Call, model: str, items: list[Item], truncate: Truncate | None, dimensions: int | None
) -> InferenceRequest:
    return InferenceRequest(
        model=call.model(model.removesuffix(":latest")),  # which Ollama's clients may write behind any name
        operation="encode",
        items=items,
        request_id=request_fields().request_id,
        output_types=("dense",),
        output_dtype="float32",
        truncate=truncate,
        dimensions=dimensions,
        deadline=call.deadline,
    )


def _field(param: str) -> str:
    return "model" if param == "output_types" else param


def _vectors(reply: InferenceReply) -> Iterable[Vector]:
    return (read_item(item)["dense"]["values"] for item in reply.items)


ROUTES = (
    Route(
        paths=("/api/embed",),
        name="ollama_embed",
        about="""\
Embed texts, as Ollama does; `model` is an id of this server.

A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of `Prefer: wait=N`.
""",
        body=OllamaEmbedBody,
        reply=OllamaEmbedReply,
        operation=Operation(OllamaEmbedBody, embed_request, embed_reply, embed_field),
        dialect="ollama",
        tag="ollama",
        examples=(Example("Two texts", {"model": MODEL, "input": ["Bees make honey.", "who makes honey?"]}),),
    ),
    Route(
        paths=("/api/embeddings",),
        name="ollama_embeddings",
        about="Embed one text, as Ollama's clients did before `/api/embed`.",
        body=OllamaEmbeddingsBody,
        reply=OllamaEmbeddingsReply,
        operation=Operation(OllamaEmbeddingsBody, prompt_request, prompt_reply, prompt_field),
        dialect="ollama",
        tag="ollama",
        examples=(Example("One text", {"model": MODEL, "prompt": "Bees make honey."}),),
    ),
)

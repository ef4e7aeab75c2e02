"""`POST /v1/embed` and `POST /v2/embed`: Cohere's embeddings over `encode`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from sie_core.api.body.embedding_types import FLOAT_BYTES, WRITE, EmbeddingType
from sie_core.api.body.json_body import Entries, write_json
from sie_core.api.body.pieces import Content
from sie_core.api.body.reply_body import read_item, size_of
from sie_core.api.cohere.inputs import field_name, read_inputs
from sie_core.api.cohere.schema import CohereEmbedBody, CohereEmbedReply
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route
from sie_core.api.native.spellings import prompt_named
from sie_core.api.openapi.examples import MODEL, Example
from sie_core.contracts import InferenceReply, InferenceRequest, Truncate
from sie_core.logs import request_fields

_TRUNCATE: Final[Mapping[str, Truncate]] = {"NONE": "error", "START": "start", "END": "end"}
_WAITS: Final = (
    "A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of `Prefer: wait=N`."
)


def embed_request(call: Call, body: CohereEmbedBody) -> InferenceRequest:
    """Ask for float32 vectors, of which every type is made.

    Raises:
        InvalidInput: An input is wrong.
    """
    prompt = prompt_named(None if body.input_type == "image" else body.input_type)
    return InferenceRequest(
        model=call.model(body.model),
        operation="encode",
        items=read_inputs(body, call.settings.max_item_text_bytes),
        request_id=request_fields().request_id,
        output_types=("dense",),
        output_dtype="float32",
        input_type=prompt.input_type,
        truncate=None if body.truncate is None else _TRUNCATE[body.truncate],
        dimensions=body.output_dimension,
        wishes=prompt.wishes,
        demands=prompt.demands,
        deadline=call.deadline,
    )


def embedding_types(body: CohereEmbedBody) -> list[EmbeddingType]:
    """Return the forms of the vectors that a client wants."""
    return body.embedding_types or ["float"]


def embed_reply(version: str, call: Call, body: CohereEmbedBody, reply: InferenceReply) -> Content:
    """Write the reply of Cohere's API `version`, `1` or `2`."""
    vectors = [read_item(item)["dense"]["values"] for item in reply.items]
    plain = version == "1" and body.embedding_types is None
    types = embedding_types(body)
    spent = {"input_tokens": reply.usage.input_tokens}
    by_type = {name: Entries(map(WRITE[name], vectors)) for name in types}
    return write_json(
        {
            "id": request_fields().request_id,
            "response_type": "embeddings_floats" if plain else "embeddings_by_type",
            "embeddings": by_type["float"] if plain else by_type,
            "texts": body.texts or [],
            "meta": {
                "api_version": {"version": version},
                # Nobody is billed, but some clients read no other count.
                "billed_units": spent | ({"images": reply.usage.images} if reply.usage.images else {}),
                "tokens": spent,
            },
        },
        size_of(reply),
    )


def _route(version: str, name: str, about: str) -> Route:
    return Route(
        paths=(f"/v{version}/embed",),
        name=name,
        about=f"{about}\n\n{_WAITS}",
        body=CohereEmbedBody,
        reply=CohereEmbedReply,
        operation=Operation(
            CohereEmbedBody,
            embed_request,
            partial(embed_reply, version),
            field_name,
            float_bytes=lambda body: sum(FLOAT_BYTES[each] for each in embedding_types(body)),
        ),
        dialect="cohere",
        tag="cohere",
        examples=(
            Example(
                "Vectors of two documents",
                {
                    "model": MODEL,
                    "texts": ["Bees make honey.", "The bakery opens at seven."],
                    "input_type": "search_document",
                    "embedding_types": ["float"],
                },
            ),
        ),
    )


ROUTES = (
    _route(
        "1",
        "embed",
        "Embed texts or pictures, in the shape of Cohere's first API: plain lists of numbers, unless types are named.",
    ),
    _route(
        "2",
        "embed_v2",
        "Embed texts or pictures, in the shape of Cohere's second API: the vectors of each type by its name.",
    ),
)

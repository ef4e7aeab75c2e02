"""`POST /v1/embeddings`: the embeddings of OpenAI and Jina over `encode`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final

from sie_core.api.body.embedding_types import FLOAT_BYTES, WRITE, EmbeddingType, Vector, bytes_in_base64, of_unit_length
from sie_core.api.body.json_body import Entries, write_json
from sie_core.api.body.pieces import Content
from sie_core.api.body.reply_body import read_item, size_of
from sie_core.api.fields.lengths import one_of, truncation_of
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route, infer_token_ids
from sie_core.api.openai.embedding_input import FOREIGN_TOKEN_IDS, param_of, read_input
from sie_core.api.openai.jina import demands, prompt_choice
from sie_core.api.openai.schema import EmbeddingsBody, EmbeddingsReply
from sie_core.api.openapi.examples import MODEL, Example
from sie_core.contracts import InferenceReply, InferenceRequest, Truncate
from sie_core.logs import request_fields

_FIELDS: Final[Mapping[str, str]] = {
    "output_types": "model",  # the body has none: the model is the wrong one
    "options.prompt_name": "task",
    "options.normalize": "normalized",
    "options.max_seq_length": "truncate_prompt_tokens",
}
"""The body's fields for parameters of the request to the backend."""
_TRUNCATION: Final[Mapping[bool | None, Truncate | None]] = {None: None, True: "end", False: "error"}


def embeddings_request(call: Call, body: EmbeddingsBody) -> InferenceRequest:
    """Ask for float32 dense vectors.

    Raises:
        InvalidInput: An input is wrong, or two fields contradict each other.
    """
    prompt = prompt_choice(body.task, body.input_type)
    return InferenceRequest(
        model=call.model(body.model),
        operation="encode",
        items=read_input(body.input, call.settings.max_item_text_bytes),
        request_id=request_fields().request_id,
        output_types=("dense",),
        output_dtype="float32",
        input_type=prompt.input_type,
        truncate=truncation_of(body, {"truncate": body.truncate, "truncation": _TRUNCATION[body.truncation]}),
        dimensions=one_of({"dimensions": body.dimensions, "output_dimension": body.output_dimension}),
        wishes=prompt.wishes,
        demands={**prompt.demands, **demands(body)},
        deadline=call.deadline,
    )


def field_name(param: str, body: EmbeddingsBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    if param.startswith("items"):
        return param_of(param, body.input)
    if param == "dimensions" and body.dimensions is None:
        return "output_dimension"
    return _FIELDS.get(param, param)


def embedding_type(body: EmbeddingsBody) -> EmbeddingType:
    """Return the form of the vectors that a client wants.

    Raises:
        InvalidInput: Two fields contradict each other.
    """
    if body.embedding_type is None and body.output_dtype in (None, "float"):
        return body.encoding_format or "float"
    named: EmbeddingType | None = one_of({"embedding_type": body.embedding_type, "output_dtype": body.output_dtype})
    return named or "float"


def writer(body: EmbeddingsBody) -> Callable[[Vector], Any]:
    """Return what writes a vector: the bytes of an `output_dtype` become base64 where that is asked for."""
    form = embedding_type(body)
    in_base64 = body.encoding_format == "base64" and body.embedding_type is None and form != "base64"
    return partial(bytes_in_base64, form) if in_base64 else WRITE[form]


def embeddings_reply(call: Call, body: EmbeddingsBody, reply: InferenceReply) -> Content:
    """Write the body; vectors become numbers or base64 without Python lists in between."""
    tokens = reply.usage.input_tokens
    write = writer(body)

    def entry(place: int, item: bytes) -> dict[str, Any]:
        vector = read_item(item)["dense"]["values"]
        return {
            "object": "embedding",
            "index": place,
            "embedding": write(of_unit_length(vector) if body.normalized else vector),
        }

    fields = {
        "object": "list",
        "data": Entries(map(entry, count(), reply.items)),
        "model": call.model(body.model),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "sie_token_source": "worker"},
    }
    return write_json(fields, size_of(reply))


EMBEDDINGS = Operation(
    EmbeddingsBody,
    embeddings_request,
    embeddings_reply,
    field_name,
    infer_token_ids(FOREIGN_TOKEN_IDS),
    float_bytes=lambda body: FLOAT_BYTES[embedding_type(body)],
)
EXAMPLES: Final = (
    Example("Vectors of two texts", {"model": MODEL, "input": ["Bees make honey.", "The bakery opens at seven."]}),
    Example("A vector as base64", {"model": MODEL, "input": "Bees make honey.", "encoding_format": "base64"}),
)
ROUTE = Route(
    paths=("/v1/embeddings",),
    name="embeddings",
    about="""\
Embed texts and, with a model that sees, pictures, as OpenAI and Jina do.

A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of `Prefer: wait=N`.
""",
    body=EmbeddingsBody,
    reply=EmbeddingsReply,
    operation=EMBEDDINGS,
    dialect="openai",
    tag="openai",
    examples=EXAMPLES,
)

"""`POST /classify` and `POST /v1/classify`: vLLM's classes of texts over `extract`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from sie_core.api.body.json_body import Entries, write_json
from sie_core.api.body.pieces import Content
from sie_core.api.body.reply_body import read_item, size_of
from sie_core.api.fields.lengths import length_demands, truncation_of
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route
from sie_core.api.openapi.examples import MODEL, Example
from sie_core.api.vllm.schema import VllmClassifyBody, VllmClassifyReply
from sie_core.api.vllm.texts import listing, place_of, read_texts
from sie_core.contracts import InferenceBackend, InferenceReply, InferenceRequest, InvalidInput, Item
from sie_core.logs import request_fields


@dataclass(frozen=True, slots=True)
class Classified(InferenceReply):
    """A reply, and the classes of the model in the order of its logits."""

    classes: Sequence[str] = ()


def classify_request(call: Call, body: VllmClassifyBody) -> InferenceRequest:
    """Ask for the classes of texts.

    Raises:
        InvalidInput: A text is wrong.
    """
    texts = read_texts(body.input, "input", MAX_EMBEDDING_INPUTS, call.settings.max_item_text_bytes)
    return InferenceRequest(
        model=call.model(body.model),
        operation="extract",
        items=[Item(id=f"item-{place}", text=text) for place, text in enumerate(texts)],
        request_id=request_fields().request_id,
        truncate=truncation_of(body, {}),
        demands={**length_demands(body), **({"activation": "identity"} if body.wants_logits else {})},
        deadline=call.deadline,
    )


async def classify(backend: InferenceBackend, body: VllmClassifyBody, asked: InferenceRequest) -> Classified:
    """Ask for the classes of texts.

    Raises:
        InvalidInput: The model has no classes of its own.
    """
    reply = await backend.infer(asked)
    classes = (await backend.describe(asked.model)).classes
    if not classes:
        message = (
            f"{asked.model} has no classes of its own; call /v1/extract/{asked.model} with the labels to look for."
        )
        raise InvalidInput(message, param="model")
    return Classified(**{each.name: getattr(reply, each.name) for each in fields(reply)}, classes=classes)


def field_name(param: str, body: VllmClassifyBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    if param.startswith("items["):
        return place_of("input", body.input, param.partition("]")[0].removeprefix("items["))
    if param == "options.activation":
        return "use_activation" if body.use_activation is False else "activation"
    return {"labels": "model", "options.max_seq_length": "truncate_prompt_tokens"}.get(param, param)


def classify_reply(call: Call, body: VllmClassifyBody, reply: Classified) -> Content:
    """Write the classes."""
    data = (_classified(place, item, reply.classes) for place, item in enumerate(reply.items))
    return write_json(listing(call, body.model, Entries(data), reply), size_of(reply))


def _classified(place: int, item: bytes, classes: Sequence[str]) -> dict[str, Any]:
    scores = {each["label"]: each["score"] for each in read_item(item)["classifications"]}
    probs = [scores.get(name, 0.0) for name in classes]
    return {"index": place, "label": max(scores, key=scores.__getitem__), "probs": probs, "num_classes": len(classes)}


ROUTE = Route(
    paths=("/classify", "/v1/classify"),
    name="vllm_classify",
    about="Classify texts by the classes of the model, as vLLM does.",
    body=VllmClassifyBody,
    reply=VllmClassifyReply,
    operation=Operation(VllmClassifyBody, classify_request, classify_reply, field_name, classify),
    dialect="openai",
    tag="vllm",
    examples=(
        Example("The class of a text", {"model": MODEL, "input": "We travel to the sea by train."}, needs="classes"),
    ),
)

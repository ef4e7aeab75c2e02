"""`POST /score` and `POST /v1/score`: vLLM's scores of pairs of texts over `score`."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Final

import orjson

from sie_core.api.body.reply_body import read_item
from sie_core.api.fields.lengths import length_demands, truncation_of
from sie_core.api.http.limits import MAX_DOCUMENTS
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route
from sie_core.api.openapi.examples import MODEL, Example
from sie_core.api.vllm.schema import VllmScoreBody, VllmScoreReply
from sie_core.api.vllm.texts import listing, place_of, read_texts
from sie_core.contracts import (
    InferenceBackend,
    InferenceError,
    InferenceReply,
    InferenceRequest,
    InvalidInput,
    Item,
    Usage,
)
from sie_core.logs import request_fields

_PLACE: Final = re.compile(r"items\[(\d+)\](.*)")
_NAMES: Final = (("text_1", "text_2"), ("queries", "documents"))
AT_ONCE: Final = 32
"""Different first texts of one request that are at work together."""


def names(body: VllmScoreBody) -> tuple[str, str]:
    """Return the names by which a body has its two texts.

    Raises:
        InvalidInput: It has not both of one pair of names, or some of both pairs.
    """
    given = [name for pair in _NAMES for name in pair if getattr(body, name) is not None]
    for pair in _NAMES:
        if given == list(pair):
            return pair
    held = ", ".join(f"`{name}`" for name in given) or "none of them"
    message = f"The body must have `text_1` and `text_2`, or `queries` and `documents`; it has {held}."
    raise InvalidInput(message, param=given[0] if given else "text_1")


def score_request(call: Call, body: VllmScoreBody) -> InferenceRequest:
    """Ask for the scores of all second texts, with the first of the first ones.

    Raises:
        InvalidInput: A text is wrong, or there are more first texts than one and not as many as second ones.
    """
    firsts, seconds = names(body)
    most = call.settings.max_item_text_bytes
    queries = read_texts(getattr(body, firsts), firsts, MAX_DOCUMENTS, most)
    documents = read_texts(getattr(body, seconds), seconds, MAX_DOCUMENTS, most)
    if len(queries) not in (1, len(documents)):
        message = f"`{firsts}` has {len(queries)} texts and `{seconds}` {len(documents)}: give one, or as many."
        raise InvalidInput(message, param=firsts)
    for place, text in enumerate(queries):
        if not text.strip():
            param = place_of(firsts, getattr(body, firsts), place)
            raise InvalidInput(f"`{param}` is blank; nothing can be compared with it.", param=param)
    return InferenceRequest(
        model=call.model(body.model),
        operation="score",
        items=[Item(text=text) for text in documents],
        request_id=request_fields().request_id,
        query=Item(text=queries[0]),
        instruction=body.instruction,
        truncate=truncation_of(body, {}),
        demands=length_demands(body),
        wishes={"activation": "identity" if body.wants_logits else "sigmoid"},
        deadline=call.deadline,
    )


async def score_pairs(backend: InferenceBackend, body: VllmScoreBody, asked: InferenceRequest) -> InferenceReply:
    """Ask for the scores of each first text with its own second ones, several at once."""
    queries = getattr(body, names(body)[0])
    if isinstance(queries, str) or len(set(queries)) == 1:
        return await backend.infer(asked)
    places: dict[str, list[int]] = {}
    for place, query in enumerate(queries):
        places.setdefault(query, []).append(place)
    room = asyncio.Semaphore(AT_ONCE)

    async def score(query: str, of: list[int]) -> InferenceReply:
        items = [asked.items[place] for place in of]
        async with room:
            try:
                return await backend.infer(replace(asked, query=Item(text=query), items=items))
            except InferenceError as error:
                raise _about(error, of) from None

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(score(query, of)) for query, of in places.items()]
    except* InferenceError as failed:
        first = failed.exceptions[0]
    else:
        return _joined([task.result() for task in tasks], list(places.values()))
    raise first


def _about(error: InferenceError, of: list[int]) -> InferenceError:
    """Name the text at fault by its place in the whole request."""
    param = error.param or ""
    if found := _PLACE.match(param):
        return error.about(f"items[{of[int(found[1])]}]{found[2]}")
    return error.about(f"query[{of[0]}]") if param.startswith("query") else error


def _joined(replies: list[InferenceReply], places: list[list[int]]) -> InferenceReply:
    """Make one reply of several, whose items have these places; it took as long as the slowest."""
    items = {
        place: item
        for of, reply in zip(places, replies, strict=True)
        for place, item in zip(of, reply.items, strict=True)
    }
    slowest = max(replies, key=lambda reply: reply.timing.total_ms)
    tokens = sum(reply.usage.input_tokens for reply in replies)
    return replace(
        slowest,
        items=[items[place] for place in sorted(items)],
        usage=Usage(input_tokens=tokens),
        truncated=sum(reply.truncated for reply in replies),
    )


def field_name(param: str, body: VllmScoreBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    firsts, seconds = names(body)
    if place := _PLACE.match(param):
        return place_of(seconds, getattr(body, seconds), place[1])
    if param.startswith("query"):
        return firsts + param.removeprefix("query").removesuffix(".text")
    return "truncate_prompt_tokens" if param == "options.max_seq_length" else param


def score_reply(call: Call, body: VllmScoreBody, reply: InferenceReply) -> bytes:
    """Write the scores."""
    data = [
        {"index": place, "object": "score", "score": read_item(item)["score"]} for place, item in enumerate(reply.items)
    ]
    return orjson.dumps(listing(call, body.model, data, reply))


ROUTE = Route(
    paths=("/score", "/v1/score"),
    name="vllm_score",
    about="""\
Score pairs of texts, as vLLM does: one text with each of several, or each of several with its own.

A cross-encoder's scores are between 0 and 1, or its logits with `use_activation` false; a model that compares
vectors gives what it finds. A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those
of `Prefer: wait=N`.
""",
    body=VllmScoreBody,
    reply=VllmScoreReply,
    operation=Operation(VllmScoreBody, score_request, score_reply, field_name, score_pairs),
    dialect="openai",
    tag="vllm",
    examples=(
        Example(
            "A text beside each of two others",
            {
                "model": MODEL,
                "text_1": "who makes honey?",
                "text_2": ["The bakery opens at seven.", "Bees make honey."],
            },
            needs="score",
        ),
    ),
)

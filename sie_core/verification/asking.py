"""Asks the engine as clients do, all texts at once and each alone, and reads its answers back from the wire's maps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from sie_sdk.wire import unpack

from sie_core.contracts import (
    Classification,
    DetectedObject,
    Entity,
    InferenceError,
    InferenceReply,
    InferenceRequest,
    ItemOutput,
    LoadWait,
    Relation,
    SparseVector,
)
from sie_core.verification.questions import Question

Infer = Callable[[InferenceRequest], Awaitable[InferenceReply]]

LOAD_WAIT_S = 3600.0
"""A first load may download."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The engine's answers to a question."""

    question: Question
    """The question as sent: without labels if the model takes none."""
    together: Sequence[ItemOutput] = ()
    """One output an item, all from one request."""
    alone: Sequence[ItemOutput] = ()
    """One output per item, each from a separate request."""
    refusal: str | None = None
    """The reason if there are no answers; None otherwise."""


async def ask(infer: Infer, model: str, question: Question) -> Answers:
    """Send all items in one request, then each in a request of its own."""
    try:
        return await _ask(infer, model, question)
    except InferenceError as error:
        if question.labels and error.param == "labels":
            return await ask(infer, model, replace(question, labels=()))
        return Answers(question, refusal=f"the engine answers {error.code}: {error.message}")


async def _ask(infer: Infer, model: str, question: Question) -> Answers:
    async def call(number: str, items: Sequence[Any]) -> list[ItemOutput]:
        request = replace(question.request(model, number, items), load_wait=LoadWait(LOAD_WAIT_S))
        reply = await infer(request)
        return [output_of(cast("Mapping[str, Any]", unpack(item, longest=None))) for item in reply.items]

    together = await call("all", question.items)
    alone = [output for item in question.items for output in await call(str(item.id), [item])]
    return Answers(question, together, alone)


def output_of(item: Mapping[str, Any]) -> ItemOutput:
    """Read an encoded item: the inverse of the engine's encoding."""
    dense, sparse, multivector = (item.get(name) for name in ("dense", "sparse", "multivector"))
    output = ItemOutput(
        dense=None if dense is None else np.asarray(dense["values"]),
        sparse=None if sparse is None else SparseVector(sparse["indices"], sparse["values"], sparse["dims"]),
        multivector=None if multivector is None else np.asarray(multivector["values"]),
        score=item.get("score"),
    )
    if "entities" in item:
        output.entities = tuple(Entity(**_tuples(each)) for each in item["entities"])
        output.relations = tuple(Relation(**_tuples(each)) for each in item["relations"])
        output.classifications = tuple(Classification(**each) for each in item["classifications"])
        output.objects = tuple(DetectedObject(**_tuples(each)) for each in item["objects"])
        output.data = item["data"]
    return output


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}

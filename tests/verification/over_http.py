"""A question asked of a server with a client, as answers that can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sie_sdk import SIEClient
from sie_sdk.types import Item as ClientItem

from sie_core.contracts import Classification, Entity, Item, ItemOutput, Relation, SparseVector
from sie_core.verification.asking import Answers
from sie_core.verification.questions import Question
from tests.clients.published import PublishedClient


def ask(client: SIEClient | PublishedClient, model: str, question: Question) -> Answers:
    items = [_item(each) for each in question.items]
    if question.operation == "score":
        assert question.query is not None
        ranked = client.score(model, _item(question.query), items)
        scores = {each["item_id"]: each["score"] for each in ranked["scores"]}
        outputs = [ItemOutput(score=scores[str(item.id)]) for item in question.items]
    elif question.operation == "extract":
        found = client.extract(model, items, labels=list(question.labels))
        outputs = [extracted(each) for each in _in_order(items, found)]
    else:
        encoded = client.encode(model, items, output_types=list(question.kinds), input_type=question.input_type)
        outputs = [_vectors(each) for each in _in_order(items, encoded)]
    return Answers(question, outputs, outputs)


def _item(item: Item) -> ClientItem:
    if item.images:
        return ClientItem(id=str(item.id), images=[item.images[0].data])
    return ClientItem(id=str(item.id), text=str(item.text))


def _in_order(items: Sequence[ClientItem], results: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    assert [each["id"] for each in results] == [each["id"] for each in items]
    return results


def _vectors(result: Mapping[str, Any]) -> ItemOutput:
    sparse = result.get("sparse")
    vector = SparseVector(sparse["indices"], sparse["values"]) if sparse is not None else None
    return ItemOutput(result.get("dense"), vector, result.get("multivector"))


def extracted(result: Mapping[str, Any]) -> ItemOutput:
    def made(kind: Any, values: Any) -> Any:
        return tuple(
            kind(**{name: tuple(part) if isinstance(part, list) else part for name, part in each.items()})
            for each in values
        )

    return ItemOutput(
        entities=made(Entity, result["entities"]),
        relations=made(Relation, result["relations"]),
        classifications=made(Classification, result["classifications"]),
    )

"""Ranks in the shape of text-embeddings-inference (TEI), and of the servers that take `documents` at the same path.

It must not know paths or the backend.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import orjson

from sie_core.api.handler import Shape
from sie_core.api.http.call_headers import CallHeaders
from sie_core.api.native.item_schema import check_item_size
from sie_core.api.rerank.ranking import asked_about, rank_documents
from sie_core.api.rerank.rerank import field_name as documents_field_name
from sie_core.api.rerank.rerank import rerank_reply, score_request
from sie_core.api.rerank.schema import RerankBody
from sie_core.api.tei.encode import truncation
from sie_core.api.tei.schema import TeiDocumentsBody, TeiRerankBody
from sie_core.contracts import InferenceReply, InferenceRequest, Item
from sie_core.logs import request_fields

_PLACE = re.compile(r"items\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Reranking:
    """Requests to rank texts with one model.

    Args:
        model: Its id.
        max_text_bytes: The most bytes of a text.
    """

    model: str
    max_text_bytes: int

    def shape(self) -> Shape[Any]:
        """Describe them."""
        return Shape(TeiRerankBody, self.ask, self.write, field_name)

    def ask(self, body: TeiRerankBody, call: CallHeaders) -> InferenceRequest:
        """Say in the contracts' terms what a client asks for. The model is not asked about blank texts.

        Raises:
            InvalidInput: A text is too large.
        """
        check_item_size(body.query, None, self.max_text_bytes, "query")
        for place, text in enumerate(body.texts):
            check_item_size(text, None, self.max_text_bytes, f"texts[{place}]")
        return InferenceRequest(
            model=self.model,
            operation="score",
            items=[Item(text=body.texts[place]) for place in asked_about(body.texts)],
            request_id=request_fields().request_id,
            query=Item(text=body.query),
            truncate=truncation(body.truncate, body.truncation_direction),
            wishes={"activation": "identity" if body.raw_scores else "sigmoid"},
            deadline=call.deadline,
            load_wait_s=call.load_wait_s or 0,
        )

    def write(self, body: TeiRerankBody, reply: InferenceReply) -> bytes:
        """Write the ranks, blank texts last."""
        ranks = [
            {"index": each.index, "score": each.score} | ({"text": body.texts[each.index]} if body.return_text else {})
            for each in rank_documents(body.texts, reply)
        ]
        return orjson.dumps(ranks)


@dataclass(frozen=True, slots=True)
class RerankingDocuments:
    """Requests to rank `documents`, answered as `/v1/rerank` answers them.

    Args:
        model: Whose they are; None leaves it to the body.
        default_model: Whose they are where nobody names one.
        max_text_bytes: The most bytes of a text.
    """

    model: str | None
    default_model: str
    max_text_bytes: int

    def shape(self) -> Shape[Any]:
        """Describe them."""
        return Shape(TeiDocumentsBody, self.ask, self.write, documents_field_name)

    def ask(self, body: TeiDocumentsBody, call: CallHeaders) -> InferenceRequest:
        """Say in the contracts' terms what a client asks for.

        Raises:
            InvalidInput: A text is too large.
        """
        named = self._named(body)
        asked = score_request(named, named.options or {}, call, self.max_text_bytes)
        return asked if self.model is None else replace(asked, model=self.model)

    def write(self, body: TeiDocumentsBody, reply: InferenceReply) -> bytes:
        """Write the ranks."""
        return rerank_reply(self._named(body), reply)

    def _named(self, body: TeiDocumentsBody) -> RerankBody:
        named = body.model if self.model is None else self.model
        return body.model_copy(update={"model": self.default_model if named is None else named})


def field_name(param: str, body: TeiRerankBody) -> str:
    """Name the field of the body that a field of the request was made of."""
    if place := _PLACE.match(param):
        return f"texts[{asked_about(body.texts)[int(place[1])]}]"
    return "query" if param == "query.text" else param

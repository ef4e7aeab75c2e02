"""The bodies of `POST /v1/score/{model}`: the request and the reply.

Unknown keys are ignored, as the wire contract demands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator, FailFast, Field

from sie_core.api.body.reply_body import TimingOutput, TruncationOutput, UsageOutput
from sie_core.api.http.limits import MAX_DOCUMENTS
from sie_core.api.native.item_schema import STRICT, ItemBody, NativeBody, Options, no_bare_string
from sie_core.api.schema import Schema
from sie_core.contracts import Truncate


class ScoreBody(NativeBody):
    """A request to score."""

    model_config = STRICT

    query: Annotated[ItemBody, BeforeValidator(no_bare_string)] = Field(description="What documents are compared with.")
    items: Annotated[list[ItemBody], FailFast(), BeforeValidator(no_bare_string)] = Field(
        min_length=1, max_length=MAX_DOCUMENTS, description="The documents."
    )
    instruction: str | None = Field(default=None, description="Of the query, for models that take one.")
    truncate: Truncate | None = Field(
        default=None,
        description="Where a text beyond the model's length is cut (`end` by default), or `error` to refuse it.",
    )
    options: Options | None = None

    def places(self) -> Iterator[tuple[int | None, ItemBody]]:
        """List the query and the items, each with its place."""
        yield None, self.query
        yield from super().places()


class ScoreEntry(Schema):
    """A document's score and rank, from 0."""

    item_id: str = Field(description="The document's id, or `item-<place in the request>`.")
    score: float
    rank: int
    truncated: TruncationOutput | None = None


class ScoreReply(Schema):
    """The documents by falling score; equal ones keep the order they were sent in."""

    model: str
    query_id: str | None
    scores: list[ScoreEntry]
    timing: TimingOutput
    usage: UsageOutput

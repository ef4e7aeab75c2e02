"""The bodies of `POST /v1/encode/{model}`: the request and the reply.

Unknown keys are ignored, as the wire contract demands.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, FailFast, Field

from sie_core.api.body.reply_body import TimingOutput, TruncationOutput, UsageOutput
from sie_core.api.http.limits import MAX_ITEMS
from sie_core.api.native.item_schema import STRICT, ItemBody, NativeBody, Options, no_bare_string
from sie_core.api.schema import Schema
from sie_core.contracts import InputType, OutputType, Truncate


class ParamsBody(Schema):
    """How to encode."""

    model_config = STRICT

    output_types: list[OutputType] | None = Field(
        default=None, min_length=1, description="Absent: what the model declares."
    )
    output_dtype: str | None = Field(
        default=None,
        min_length=1,
        description="`float32`, `float16`, `int8`, `uint8`, `binary`, `ubinary`.",
        examples=["float32"],
    )
    instruction: str | None = None
    input_type: InputType | None = Field(default=None, description="Selects the model's query or document prompt.")
    is_query: bool | None = Field(default=None, description="Another spelling of `input_type`.")
    truncate: Truncate | None = Field(
        default=None,
        description="Where a text beyond the model's length is cut (`end` by default), or `error` to refuse it.",
    )
    dimensions: int | None = Field(default=None, ge=1, description="A Matryoshka size the model declares.")
    options: Options | None = None


class EncodeBody(NativeBody):
    """A request to encode."""

    model_config = STRICT

    items: Annotated[list[ItemBody], FailFast(), BeforeValidator(no_bare_string)] = Field(
        min_length=1, max_length=MAX_ITEMS
    )
    params: ParamsBody | None = None


Numbers = Annotated[
    list[float],
    Field(description="Numbers in JSON; in msgpack one array in msgpack-numpy's form, of the type `dtype` says."),
]


class DenseOutput(Schema):
    """A vector an item."""

    dims: int
    dtype: str
    values: Numbers


class SparseOutput(Schema):
    """A sparse vector an item; `indices` ascend."""

    dims: int | None
    dtype: str
    indices: list[int]
    values: Numbers


class MultivectorOutput(Schema):
    """A vector a token."""

    token_dims: int
    num_tokens: int
    dtype: str
    values: list[Numbers]


class EncodedItem(Schema):
    """The outputs of one item; those not asked for are absent."""

    id: str | None = None
    dense: DenseOutput | None = None
    sparse: SparseOutput | None = None
    multivector: MultivectorOutput | None = None
    truncated: TruncationOutput | None = None


class EncodeReply(Schema):
    """The items in the order they were sent."""

    model: str
    items: list[EncodedItem]
    timing: TimingOutput
    usage: UsageOutput

"""What goes in and comes out of the clients: plain dicts with declared keys.

It knows no client: anything here may be used to annotate an application's own code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

OutputType = Literal["dense", "sparse", "multivector"]
OutputDtype = Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]
InputType = Literal["query", "document"]
Truncate = Literal["end", "start", "error"]
WireFormat = Literal["msgpack", "json"]


class Media(TypedDict, total=False):
    """The bytes of an image, a clip or a document, as a file holds them; `format` is e.g. `jpeg`, `wav`, `pdf`."""

    data: bytes
    format: str
    sample_rate: int


class Item(TypedDict, total=False):
    """One thing to encode: `Item(text="…")`. An `id` comes back with its result."""

    id: str
    text: str
    images: Sequence[Media]
    audio: Media
    video: Media
    document: Media
    metadata: Mapping[str, Any]


ItemLike = Item | Mapping[str, Any] | str
"""What the clients take for one item; a bare string is its text."""


class SparseEmbedding(TypedDict):
    """A sparse vector: ascending int32 `indices` and their `values`, both of shape (n,)."""

    indices: NDArray[np.int32]
    values: NDArray[Any]


class Timing(TypedDict, total=False):
    """Where a request's time went on the server, in milliseconds."""

    total_ms: float
    queue_ms: float
    tokenization_ms: float
    inference_ms: float
    postprocessing_ms: float


class Truncated(TypedDict):
    """A text that was cut to the model's length: its tokens, and how many of them the model saw."""

    tokens: int
    kept: int


class Usage(TypedDict, total=False):
    """What a request consumed, counted by the server after tokenisation."""

    input_tokens: int
    images: int


class RequestInfo(TypedDict, total=False):
    """What a reply says of the request as a whole; the same for every result of a call."""

    id: str
    usage: Usage
    served_by: str
    runtime_instance_id: str


class EncodeResult(TypedDict, total=False):
    """The result of one item; of `dense`, `sparse` and `multivector` it has the ones asked for.

    `dense` has shape (dims,), `multivector` (tokens, token_dims); their dtype is the `output_dtype` asked for, and
    eight dimensions are packed in a byte where that is `binary`. Arrays are read-only.
    """

    model: str
    id: str
    dense: NDArray[Any]
    sparse: SparseEmbedding
    multivector: NDArray[Any]
    truncated: Truncated
    timing: Timing
    request: RequestInfo


class ModelInfo(TypedDict, total=False):
    """A model as the server lists it; servers may add keys."""

    name: str
    inputs: list[str]
    outputs: list[str]
    dims: dict[str, int | None]
    loaded: bool
    state: Literal["available", "loading", "loaded", "unloading", "failed"]
    last_error: dict[str, Any] | None
    max_sequence_length: int | None
    profiles: dict[str, dict[str, Any]]
    revision: str | None


class EncodeSettings(TypedDict, total=False):
    """The keyword arguments of `encode`; its docstring says what each does."""

    output_types: Sequence[OutputType] | None
    output_dtype: OutputDtype | None
    instruction: str | None
    is_query: bool | None
    input_type: InputType | None
    dimensions: int | None
    truncate: Truncate | None
    options: Mapping[str, Any] | None
    gpu: str | None
    wait_for_capacity: bool
    provision_timeout_s: float | None
    max_oom_retries: int

"""What goes in and comes out of the clients: plain dicts with declared keys.

It knows no client: anything here may be used to annotate an application's own code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import NDArray

OutputType = Literal["dense", "sparse", "multivector"]
OutputDtype = Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]
InputType = Literal["query", "document"]
Truncate = Literal["end", "start", "error"]
Priority = Literal["interactive", "bulk"]
WireFormat = Literal["msgpack", "json"]


class Media(TypedDict, total=False):
    """The bytes of an image, a clip or a document, as a file holds them; `format` is e.g. `jpeg`, `wav`, `pdf`."""

    data: bytes
    format: str
    sample_rate: int


@runtime_checkable
class PillowImage(Protocol):
    """What is used of a Pillow image, which this package does not need otherwise."""

    @property
    def mode(self) -> str:
        """How its pixels are stored, e.g. `RGB`."""
        ...

    def convert(self, mode: str) -> PillowImage:
        """Return it in another mode."""
        ...

    def save(self, fp: Any, format: str | None = None, **params: Any) -> None:  # noqa: A002 - Pillow's name
        """Write it to a file."""
        ...


MediaLike = Media | Mapping[str, Any] | bytes | str | os.PathLike[str]
"""A clip or a document: the path of a file, the bytes of one, or a `Media`."""
ImageLike = MediaLike | NDArray[Any] | PillowImage
"""An image: as `MediaLike`, or its pixels in a Pillow image or an array of uint8, (height, width) or (height, width,
channels)."""


class Item(TypedDict, total=False):
    """One thing to encode, to score or to extract from: `Item(text="…")`. An `id` comes back with its result.

    `token_ids` are those of the model's own tokenizer in place of `text`, for models whose config accepts them.
    """

    id: str
    text: str
    token_ids: Sequence[int]
    images: Sequence[ImageLike]
    audio: MediaLike
    video: MediaLike
    document: MediaLike
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


class _ScoreEntry(TypedDict):
    item_id: str
    score: float
    rank: int


class ScoreEntry(_ScoreEntry, total=False):
    """A document's place in a ranking: its id, or `item-<place in the request>`, its score, its rank from 0."""

    truncated: Truncated


class ScoreResult(TypedDict, total=False):
    """The documents of a call by falling score; `query_id` is there where the query had an id."""

    model: str
    query_id: str
    scores: list[ScoreEntry]
    usage: Usage
    timing: Timing
    request: RequestInfo


class _Entity(TypedDict):
    text: str
    label: str
    score: float


class Entity(_Entity, total=False):
    """Something named in the item: `text` stands at `[start:end]` of the item's text, in characters."""

    start: int | None
    end: int | None
    bbox: list[float] | None


class _Relation(TypedDict):
    head: str
    tail: str
    relation: str
    score: float


class Relation(_Relation, total=False):
    """A relation between two texts of the item; the spans, `[start, end]`, say where, if the model does."""

    head_span: list[int]
    tail_span: list[int]


class Classification(TypedDict):
    """A label of the whole item."""

    label: str
    score: float


class DetectedObject(TypedDict):
    """Something seen in an image; `bbox` is x, y, width and height in pixels."""

    label: str
    score: float
    bbox: list[float]


class ItemError(TypedDict, total=False):
    """Why one item of a batch has no result, from servers that answer the others nevertheless."""

    code: str
    message: str


class ExtractResult(TypedDict, total=False):
    """What was extracted from one item. The lists are always there; `data` where the model gave some."""

    model: str
    id: str
    entities: list[Entity]
    relations: list[Relation]
    classifications: list[Classification]
    objects: list[DetectedObject]
    data: dict[str, Any]
    error: ItemError
    truncated: Truncated
    timing: Timing
    request: RequestInfo


class ModelInfo(TypedDict, total=False):
    """A model as the server lists it; servers may add keys, and leave out what they do not know."""

    name: str
    inputs: list[str]
    outputs: list[str]
    operations: list[str]
    dims: dict[str, int]
    available: bool
    loaded: bool
    state: Literal["available", "loading", "loaded", "unloading", "failed"]
    last_error: dict[str, Any] | None
    max_sequence_length: int
    profiles: dict[str, dict[str, Any]]
    revision: str
    memory_bytes: int
    last_used_at: float
    pinned: bool
    precision: str
    runner: str


class Token(TypedDict):
    """A token of a text, and where it stands in it, `[start:stop]` in characters; None for a special token."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


WatchMode = Literal["auto", "cluster", "worker"]


class CapacityInfo(TypedDict):
    """What a gateway's workers can take.

    `worker_count`, `gpu_count`, `ready_gpu_slots` (GPUs that take more work now) and `models_loaded` count workers that
    take work; `workers` lists those that do not, too. `configured_gpu_types` are machine profiles that can be scaled
    up, `live_gpu_types` those of workers that take work.
    """

    status: Literal["healthy", "degraded", "unhealthy", "no_workers"]
    worker_count: int
    gpu_count: int
    ready_gpu_slots: int
    models_loaded: int
    configured_gpu_types: list[str]
    live_gpu_types: list[str]
    workers: list[dict[str, Any]]


class HealthInfo(TypedDict, total=False):
    """What a server says of itself; servers may add keys.

    `problems` says why it is not `healthy`; `models` are those that are loaded, on the way there or failed.
    """

    status: Literal["healthy", "degraded", "unhealthy", "no_workers"]
    type: Literal["standalone", "gateway"]
    version: str
    uptime_s: float
    problems: list[str]
    requests_in_flight: int
    cluster: dict[str, Any]
    workers: list[dict[str, Any]]
    models: list[dict[str, Any]]
    configured_gpu_types: list[str]
    live_gpu_types: list[str]


class PoolWorkerInfo(TypedDict):
    """A worker of a pool: its name, the address of its probes where it tells it, machine profile and bundle."""

    name: str
    url: str | None
    gpu: str
    bundle: str


class PoolSpecInfo(TypedDict):
    """What a pool wants."""

    gpus: dict[str, int]
    gpu_caps: dict[str, int]
    bundle: str | None
    queue_pool: str | None
    minimum_worker_count: int
    pinned_models: list[str]


class PoolStatusInfo(TypedDict):
    """How a pool is: `pending`, `active` or `expired`; times are Unix seconds, None for the default pool."""

    state: str
    assigned_workers: list[PoolWorkerInfo]
    created_at: float | None
    last_renewed: float | None


class PoolInfo(TypedDict):
    """A resource pool."""

    name: str
    spec: PoolSpecInfo
    status: PoolStatusInfo

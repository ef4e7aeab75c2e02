"""What a client asks for, once decoded: an `InferenceRequest` of `Item`s, and the `Task` every item of it shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Operation = Literal["encode", "score", "extract"]
OutputType = Literal["dense", "sparse", "multivector"]
InputType = Literal["query", "document"]
Truncate = Literal["end", "start", "error"]


@dataclass(frozen=True, slots=True)
class Media:
    """One image, audio clip, video or document of an item: the bytes as they came, undecoded."""

    data: bytes
    format: str | None = None
    sample_rate: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to encode, score or extract from."""

    id: str | None = None
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    """Ids of the model's own tokenizer in place of `text`; only where the model's config accepts them."""
    images: tuple[Media, ...] = ()
    audio: Media | None = None
    video: Media | None = None
    document: Media | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked of every item of one request, resolved against the model's profile and validated.

    `options` holds only options the family declares, checked, with the profile's values under the request's.
    """

    operation: Operation
    output_types: tuple[OutputType, ...] = ()
    input_type: InputType | None = None
    """None does what the reference library's plain `encode` does; the others select its query or document prompt."""
    instruction: str | None = None
    truncate: Truncate | None = None
    """Which end of a text beyond the model's length is cut, or `error` to refuse it; None cuts where the weights' own
    files say, the end where they say nothing."""
    dimensions: int | None = None
    """A declared Matryoshka size for the dense output; None keeps the native one."""
    labels: tuple[str, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    query: Item | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One client call, decoded and checked for form; the backend checks it against the model.

    None means "not said": the profile's value, then the default, applies.
    """

    model: str
    """The id as the client wrote it: `org/name` or `org/name:profile`."""
    operation: Operation
    items: Sequence[Item]
    request_id: str
    output_types: tuple[OutputType, ...] | None = None
    output_dtype: str | None = None
    input_type: InputType | None = None
    instruction: str | None = None
    truncate: Truncate | None = None
    dimensions: int | None = None
    labels: tuple[str, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    query: Item | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    deadline: float | None = None
    """`time.monotonic()` seconds after which nobody wants the answer."""
    load_wait_s: float = 0.0
    """How long to wait for a model that is not loaded before `MODEL_LOADING` is raised."""

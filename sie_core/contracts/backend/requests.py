"""A decoded client request: an `InferenceRequest` of `Item`s, and the `Task` that all items share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from sie_core.contracts.family.lora import Lora

Operation = Literal["encode", "score", "extract"]
OutputType = Literal["dense", "sparse", "multivector"]
InputType = Literal["query", "document"]
Truncate = Literal["end", "start", "error"]
Priority = Literal["interactive", "bulk"]


@dataclass(frozen=True, slots=True)
class Media:
    """One image, audio clip, video or document of an item: the received bytes, undecoded and unchecked.

    `Adapter.prepare` decodes them, and refuses bytes that cannot be decoded, or are too large once decoded, with
    `InvalidInput` that names `items[0].images[0]` or `items[0].audio`.
    """

    data: bytes
    format: str | None = None
    """Format stated by the client (`jpeg`, `png`, `wav`, …); the bytes themselves decide."""
    sample_rate: int | None = None
    """Samples a second, for raw audio that does not state it."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to encode, score or extract from."""

    id: str | None = None
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    """Ids of the model's own tokenizer in place of `text`; only if the model's config accepts them."""
    _: KW_ONLY
    images: tuple[Media, ...] = ()
    audio: Media | None = None
    video: Media | None = None
    document: Media | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The work asked of every item of one request, validated and resolved against the model's profile.

    `options` holds only checked options that the family declares for the operation; request values override profile
    values.
    """

    operation: Operation
    """One of the model's `ModelFacts.operations`."""
    output_types: tuple[OutputType, ...] = ()
    """Output types that `encode` must return; empty for other operations."""
    input_type: InputType | None = None
    """None means the reference library's plain `encode`; the others select its query or document prompt."""
    _: KW_ONLY
    instruction: str | None = None
    truncate: Truncate | None = None
    """Which end of an overlong text is cut; `error` refuses such a text.

    None follows the weights' own files, and cuts the end if they do not say.
    """
    dimensions: int | None = None
    """A declared Matryoshka size for the dense output; None keeps the native one."""
    labels: tuple[str, ...] = ()
    """Labels for `extract`, in the client's order, unique and not blank.

    Empty if the client named none; a model that requires labels (`ModelFacts.takes_labels`) then never receives the
    task.
    """
    output_schema: Mapping[str, Any] | None = None
    """A JSON Schema of `ItemOutput.data`; only for models that take one (`ModelFacts.takes_schema`)."""
    query: Item | None = None
    """The query of `score`, compared with each item; never None there, and never blank."""
    options: Mapping[str, Any] = field(default_factory=dict)
    lora: Lora | None = None
    """The LoRA adapter to apply, as `Adapter.load_lora` made it; units of different ones need different keys."""


def _always() -> AbstractContextManager[bool]:
    return nullcontext(True)


@dataclass(frozen=True, slots=True)
class LoadWait:
    """How long a request waits for an unloaded model or LoRA adapter before its client is asked to retry."""

    seconds: float = 0.0
    if_soon: bool = False
    """Whether to give up at once if the load is predicted to take longer than that."""
    place: Callable[[], AbstractContextManager[bool]] = field(default=_always, compare=False)
    """Returns a context manager that a backend enters around the wait; it yields False if no place is left, and the
    request must not wait.
    """


AT_ONCE = LoadWait()
"""Not to wait at all."""


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """Upper bound on the bytes of a reply, and the size of numbers in its format.

    A backend refuses a larger one with `REPLY_TOO_LARGE`, before computing it if it can.
    """

    most_bytes: int | None = None
    """None for no limit."""
    float_bytes: float | None = None
    """Average bytes of a floating-point number in a text reply; None if numbers are written as raw bytes of their
    dtype.
    """
    integer_bytes: float | None = None
    """The same of an integer, or of eight packed bits."""


ANY_REPLY = ReplyForm()
"""A reply of any size, its numbers as their bytes."""


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One client call, decoded and checked for form; the backend checks it against the model.

    None means "not stated": the profile's value applies, then the default.
    """

    model: str
    """The id as the client wrote it: `org/name` or `org/name:profile`."""
    operation: Operation
    items: Sequence[Item]
    _: KW_ONLY
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
    wishes: Mapping[str, Any] = field(default_factory=dict)
    """Options that apply if the model has them for the operation, and are ignored otherwise."""
    demands: Mapping[str, Any] = field(default_factory=dict)
    """Options stated in a field of another API.

    They are refused if the model does not have them for the operation. Unknown entries of `options`, by contrast, are
    ignored and named in the reply.
    """
    deadline: float | None = None
    """`time.monotonic()` seconds after which the answer is useless."""
    load_wait: LoadWait = AT_ONCE
    reply: ReplyForm = ANY_REPLY
    client: str | None = None
    """Identity of the sender; the clients that wait for a model get equal shares of it."""
    priority: Priority | None = None
    """Its place among the requests of its client; None is between the two."""
    machine_profile: str | None = None
    """The machine profile of the only workers that may answer, in lower case."""
    resource_pool: str | None = None
    """The leased pool that the request is for, in lower case; None for unleased capacity."""

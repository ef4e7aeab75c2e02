"""Work and its result: a slice of a request on its way to a worker, and the answer on its way back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import accumulate, pairwise, repeat
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

import msgpack
from pydantic import AfterValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from sie_cluster.messages.frames import (
    LARGE_BYTES,
    FrameError,
    Pieces,
    decode,
    encode,
    encode_pieces,
    read_head,
    sections_of,
    size_of,
    wrong,
)
from sie_cluster.settings import ClusterSettings
from sie_core.contracts import Operation, Timing, Usage

MOST_ITEMS = 32
"""Items of one slice that a gateway cuts."""
MOST_WHOLE = 16_384
"""Items of a request that a front end sends whole."""
MOST_SIZES = 1024
"""Items whose sizes a head holds; of more, which are small, the items are read."""
MOST_COUNT = 1 << 53
MOST_RESULT_BYTES = 1 << 29
"""Of one slice; a worker refuses to send a larger one."""
WorkOperation = Operation | Literal["tokenize", "decode", "describe"]
Head = TypeVar("Head", "WorkHead", "ResultHead")
T = TypeVar("T")


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("names in a result hold control characters")
    return text


Printable = Annotated[str, AfterValidator(_printable)]
Listed = Annotated[tuple[T, ...], Strict(False)]
"""A list on the wire."""
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Numbers = Mapping[str, Count | Annotated[float, Field(ge=0, le=MOST_COUNT)]]
"""Times or counts."""
BATCH_BYTES_A_COST = 4
"""About how many bytes a token has."""
_TOKEN = re.compile(r"[*>\s]")


class WorkHead(NamedTuple):
    """What a sidecar reads of a slice."""

    request_id: str
    slice: Count
    """Which slice of the request, from 0."""
    slices: Count
    attempt: Annotated[int, Field(ge=1)]
    """1 at first; a slice whose result was lost is sent again with the next."""
    operation: WorkOperation
    model: str
    """As it is listed, profile included."""
    key: bytes
    """Equal for slices that may share a batch: a hash of model, operation and what their items share."""
    first: Count
    """The index of its first item in the request."""
    items: Annotated[int, Field(ge=1, le=MOST_WHOLE)]
    cost: Count
    """Bytes of its items: cheap to know, and in proportion to the tokens of one model's texts."""
    reply: str
    """The subject that waits for the result, the request's own: no two requests in flight have the same."""
    client: str | None = None
    """Whose request it is; see `InferenceRequest.client`."""
    priority: str | None = None
    left_s: float | None = None
    """Seconds until nobody wants the answer, when it was sent."""
    trace: str | None = None
    """The `traceparent` of the request."""
    alone: bool = False
    """Whether it shares no batch: a process ended while it was at work."""
    offer: Mapping[str, Any] | None = None
    """Where the whole slice can be fetched, from `Offer.to_map`: it is larger than a message."""
    config_epoch: int | None = None
    """The epoch of the last change of the model's config that its gateway knows; None without a config service."""
    sizes: Listed[int] | None = None
    """Bytes of each item, where they are many: the items are split by them, and not read."""
    lora: str | None = None
    """The LoRA adapter that is asked for."""
    resource_pool: str = "default"
    """The one whose workers may answer."""
    profile: str = "any"
    """The machine profile whose workers may answer."""

    @property
    def id(self) -> str:
        """The message's id in the queue. Two clients may choose the same id of a request; replies differ."""
        return f"{self.reply}.{self.slice}.{self.attempt}"


class ResultHead(NamedTuple):
    """What a gateway reads of a result before it takes the items."""

    request_id: str
    slice: int
    attempt: int
    items: Annotated[int, Field(ge=0, le=MOST_WHOLE)]
    error: Mapping[str, Any] | None = None
    """From `error_to_map`; there are no items then."""
    timing: Numbers | None = None
    usage: Numbers | None = None
    truncated: int = 0
    lora: Printable | None = None
    ignored_options: Listed[Printable] = ()
    query: Numbers | None = None
    """Of `usage`, what a query took that all slices share."""
    query_truncated: bool = False
    sizes: Listed[int] | None = None
    """Bytes of each item, where they are many: the items are split by them, and not read."""
    config: str | None = None
    """See `InferenceReply.config`."""
    worker: str | None = None
    """The name of the worker."""
    computed: Printable | None = None
    """See `InferenceReply.computed`; None from a worker that does not say."""

    def read_timing(self) -> Timing:
        """Read the times."""
        return Timing(**_known(Timing, self.timing))

    def read_usage(self) -> Usage:
        """Read the counts."""
        return Usage(**_known(Usage, self.usage))

    def read_query(self) -> Usage:
        """Read those of the query."""
        return Usage(**_known(Usage, self.query))


_READERS: Mapping[type, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False)) for kind in (WorkHead, ResultHead)
}
_DEFAULTS: Mapping[type, tuple[Any, ...]] = {
    kind: tuple(map(kind._field_defaults.get, kind._fields, repeat(object()))) for kind in (WorkHead, ResultHead)
}
"""Of a head's fields, in their order; what has none equals no value."""
_NAMES = {kind: tuple(each.name for each in fields(kind)) for kind in (Timing, Usage)}


def work_key(model: str, operation: WorkOperation, shared: bytes) -> bytes:
    """Give the 16 bytes that slices of one batch have in common."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in (model.encode(), operation.encode(), shared):
        hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.digest()


def encode_work(
    head: WorkHead, shared: bytes, items: Sequence[bytes], query: bytes = b"", left_s: float | None = None
) -> bytes:
    """Write a slice in one piece; see `work_pieces`."""
    return b"".join(work_pieces(head, shared, items, query, left_s))


def work_pieces(
    head: WorkHead, shared: bytes, items: Sequence[bytes], query: bytes = b"", left_s: float | None = None
) -> Pieces:
    """Write a slice: its head, what its items share, the query, and the items.

    Args:
        head: The head.
        shared: What its items share.
        items: The items.
        query: The query; empty where there is none.
        left_s: The head's, where it was made before.
    """
    told = _plain(head)
    if left_s is not None:
        told["left_s"] = left_s
    if len(items) <= MOST_SIZES and size_of(items) >= LARGE_BYTES:
        told["sizes"] = list(map(len, items))
    return encode_pieces(told, ((shared,), (query,), _array(items)))


def encode_offered(head: WorkHead, left_s: float, offer: Mapping[str, Any]) -> bytes:
    """Write the head of a slice that is to be fetched."""
    return encode({**_plain(head), "left_s": left_s, "offer": dict(offer)}, (b"", b"", b""))


def encode_result(head: ResultHead, items: Sequence[bytes] = ()) -> bytes:
    """Write a result with the encoded items of a reply, in one piece."""
    return b"".join(result_pieces(head, items))


def result_pieces(head: ResultHead, items: Sequence[bytes] = ()) -> Pieces:
    """Write a result with the encoded items of a reply."""
    told = _plain(head)
    if len(items) <= MOST_SIZES and size_of(items) >= LARGE_BYTES:
        told["sizes"] = list(map(len, items))
    return encode_pieces(told, (_array(items),))


def read_work_head(frame: bytes | memoryview) -> WorkHead:
    """Read the head of a slice alone.

    Raises:
        FrameError: It is no slice, or breaks a bound.
    """
    head = _made(WorkHead, read_head(frame))
    if head.slice >= head.slices:
        raise FrameError(f"slice {head.slice} of {head.slices} contradict each other")
    return head


def decode_work(frame: bytes | memoryview) -> tuple[WorkHead, memoryview, list[bytes], memoryview]:
    """Read a slice: its head, what its items share, the items, and the query, empty where there is none.

    Raises:
        FrameError: It is no slice, or breaks a bound.
    """
    head = read_work_head(frame)
    return head, *work_sections(frame, head)


def work_sections(frame: bytes | memoryview, head: WorkHead) -> tuple[memoryview, list[bytes], memoryview]:
    """Read the rest of a slice whose head was read: what its items share, the items, and the query.

    Raises:
        FrameError: It is no slice, or breaks a bound.
    """
    sections = sections_of(frame)
    if len(sections) != 3:
        raise FrameError(f"a slice has 3 sections, not {len(sections)}")
    shared, query, items = sections
    return shared, _split(items, head.sizes, head.items), query


def decode_result(frame: bytes | memoryview) -> tuple[ResultHead, list[bytes]]:
    """Read a result and its items.

    Raises:
        FrameError: It is no result, or breaks a bound.
    """
    return read_result(*decode(frame))


def read_result(told: Mapping[str, Any], sections: Sequence[memoryview]) -> tuple[ResultHead, list[bytes]]:
    """Read a result and its items from the map of its head and the sections of its frame.

    Raises:
        FrameError: It is no result, or breaks a bound.
    """
    head = _made(ResultHead, told)
    if head.error is not None and head.items:
        raise FrameError(f"a result of {head.items} items beside an error")
    if len(sections) != 1:
        raise FrameError(f"a result has 1 section, not {len(sections)}")
    return head, _split(sections[0], head.sizes, head.items)


def batch_bytes(settings: ClusterSettings) -> int:
    """Give the bytes of items that make about a batch."""
    return BATCH_BYTES_A_COST * settings.max_batch_cost


def subject(*tokens: str) -> str:
    """Join names into a subject: `/` is written `__`, `.` is `_dot_`, and `*`, `>` and blanks are `_`."""
    return ".".join(_TOKEN.sub("_", token.replace("/", "__").replace(".", "_dot_")) for token in tokens)


def _array(items: Sequence[bytes]) -> tuple[bytes, ...]:
    return (_array_of(len(items)), *items) if items else ()


@lru_cache(maxsize=MOST_ITEMS)
def _array_of(count: int) -> bytes:
    header: bytes = msgpack.Packer().pack_array_header(count)
    return header


def _split(section: memoryview, sizes: Sequence[int] | None, count: int) -> list[bytes]:
    """Split an array of values, by their sizes where they are large; the parts are views of it then, no copies."""
    if sizes is None:
        return _parts(section, count)
    header = _array_of(count)
    if len(sizes) != count or not all(type(size) is int and size > 0 for size in sizes):
        raise FrameError(f"the sizes of {count} items are not a number for each")
    if section[: len(header)] != header or len(header) + sum(sizes) != len(section):
        raise FrameError(f"the sizes of {count} items are not those of a section of {len(section)} bytes")
    return [cast("bytes", section[start:stop]) for start, stop in pairwise(accumulate(sizes, initial=len(header)))]


def _parts(section: memoryview, count: int) -> list[bytes]:
    """Split an array of msgpack values without reading them."""
    if not count:
        if len(section):
            raise FrameError(f"no items are announced, and there are {len(section)} bytes")
        return []
    unpacker = msgpack.Unpacker(max_buffer_size=len(section))
    unpacker.feed(section)
    try:
        there = unpacker.read_array_header()
        ends = [unpacker.tell()]
        for _ in range(min(there, count)):
            unpacker.skip()
            ends.append(unpacker.tell())
    except (ValueError, msgpack.UnpackException) as error:
        raise FrameError(f"the items cannot be read ({type(error).__name__})") from None
    if there != count:
        raise FrameError(f"{count} items are announced, and {there} are there")
    if ends[-1] != len(section):
        raise FrameError(f"{len(section) - ends[-1]} bytes are left behind the items")
    return [bytes(section[start:stop]) for start, stop in pairwise(ends)]


def _plain(head: WorkHead | ResultHead) -> dict[str, Any]:
    """Give the fields of a head that are not at their defaults."""
    row = zip(head._fields, head, _DEFAULTS[type(head)], strict=True)
    return {name: value for name, value, default in row if value is not default}


def _made(kind: type[Head], told: Mapping[str, Any]) -> Head:
    """Make a head of a map; fields that a newer peer knows are passed over."""
    try:
        head: Head = _READERS[kind].validate_python({name: told[name] for name in kind._fields if name in told})
    except ValidationError as error:
        raise wrong(error) from None
    return head


def _known(kind: type[Timing | Usage], told: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: told[name] for name in _NAMES[kind] if name in told} if told else {}


def to_map(value: Timing | Usage) -> dict[str, Any]:
    """Write times or counts for a result's head."""
    return {name: each for name in _NAMES[type(value)] if (each := getattr(value, name)) is not None}

"""A request as bytes: what its items share, and the items, each packed once by the gateway and read by a worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, fields, replace
from operator import attrgetter
from typing import Any, cast

from sie_sdk.wire import WireError, pack, pack_each, pack_with_arrays, unpack

from sie_cluster.messages.frames import FrameError, NewerFrame
from sie_core.contracts import DecodeRequest, InferenceRequest, Item, LoadWait, Media, ReplyForm, Token, TokenizeRequest

OF_THE_HEAD = frozenset(
    {"model", "operation", "items", "request_id", "deadline", "query", "client", "priority"}
    | {"machine_profile", "resource_pool"}
)
"""Fields of a request that travel elsewhere: in the head, or as items."""
TUPLES = frozenset({"output_types", "labels"})
MEDIA = ("audio", "video", "document")
MOST_VALUES = 1 << 20
Place = Callable[[], AbstractContextManager[bool]]


class _Fields:
    """The fields of what is packed, with their defaults, which do not travel."""

    def __init__(self, kind: type[InferenceRequest | Item | Media], without: frozenset[str] = frozenset()) -> None:
        kept = [each for each in fields(kind) if each.name not in without]
        self.names = tuple(each.name for each in kept)
        self._defaults = tuple(
            each.default_factory() if each.default_factory is not MISSING else each.default for each in kept
        )
        self._values = attrgetter(*self.names)

    def told(self, value: Any) -> dict[str, Any]:
        """Give the fields of a value that are not at their defaults."""
        row = zip(self.names, self._values(value), self._defaults, strict=True)
        return {name: said for name, said, default in row if said is not default and said != default}


_SHARED, _ITEM, _MEDIA = _Fields(InferenceRequest, OF_THE_HEAD), _Fields(Item), _Fields(Media)
_KNOWN = frozenset(_SHARED.names)
_BESIDE_TEXT = attrgetter(*(name for name in _ITEM.names if name != "text"))
_NONE_BESIDE = _BESIDE_TEXT(Item())


def pack_shared(request: InferenceRequest) -> bytes:
    """Pack what every item of a request shares. Requests with equal bytes may share a batch."""
    told = _SHARED.told(request)
    if "load_wait" in told:
        told["load_wait"] = load_wait_row(request.load_wait)
    if "reply" in told:
        form = request.reply
        told["reply"] = [form.most_bytes, form.float_bytes, form.integer_bytes]
    return pack(told)


def pack_small_items(items: Iterable[Item]) -> list[bytes]:
    """Pack items, each on its own."""
    return pack_each(map(_told, items))


def pack_large_items(items: Iterable[Item]) -> list[bytes]:
    """Pack items that hold megabytes, while other threads run."""
    return [cast("bytes", pack_with_arrays(_told(item))) for item in items]  # a view is read as bytes are


def media_bytes(item: Item) -> int:
    """Count the bytes of an item's pictures, sound, video and document."""
    if not (item.images or item.audio or item.video or item.document):
        return 0
    media = (*item.images, item.audio, item.video, item.document)
    return sum(len(each.data) for each in media if each is not None)


def pack_item(item: Item) -> bytes:
    """Pack one item."""
    return pack_small_items((item,))[0]


def read_request(
    head: Mapping[str, Any],
    shared: bytes | memoryview,
    items: Sequence[bytes | memoryview],
    query: bytes | memoryview,
    place: Place | None = None,
) -> InferenceRequest:
    """Read a slice as a request of its own.

    Args:
        head: `model`, `operation`, `request_id`, `client`, `priority`, and `left_s`: seconds until nobody
            wants the answer, None for ever.
        shared: From `pack_shared`.
        items: From `pack_item`.
        query: From `pack_item`; empty where there is none.
        place: Of `LoadWait`; None: there is always one.

    Raises:
        FrameError: It is not what these functions write. `NewerFrame`: it has a field that only a newer release knows.
    """
    told = _map(shared)
    if unknown := sorted(told.keys() - _KNOWN):
        raise NewerFrame(f"the request has a field {unknown[0][:64]!r}, which this process does not know")
    left = head.get("left_s")
    try:
        shared_fields: dict[str, Any] = {name: tuple(told[name]) if name in TUPLES else told[name] for name in told}
        if "load_wait" in told:
            shared_fields["load_wait"] = read_load_wait(told["load_wait"], place)
        if "reply" in told:
            shared_fields["reply"] = ReplyForm(*told["reply"])
        return InferenceRequest(
            model=head["model"],
            operation=head["operation"],
            request_id=head["request_id"],
            client=head.get("client"),
            priority=head.get("priority"),
            items=[read_item(each) for each in items],
            query=read_item(query) if len(query) else None,
            # The time left is counted from here on: clocks of two hosts are never compared.
            deadline=None if left is None else time.monotonic() + float(left),
            **shared_fields,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"the request cannot be read ({type(error).__name__})") from None


def read_item(packed: bytes | memoryview) -> Item:
    """Read one item.

    Raises:
        FrameError: It is not what `pack_item` writes.
    """
    told = _map(packed)
    try:
        for name in MEDIA:
            if name in told:
                told[name] = Media(**told[name])
        if "images" in told:
            told["images"] = tuple(Media(**each) for each in told["images"])
        if "token_ids" in told:
            told["token_ids"] = tuple(told["token_ids"])
        return Item(**told)
    except (TypeError, ValueError) as error:
        raise FrameError(f"an item cannot be read ({type(error).__name__})") from None


def load_wait_row(wait: LoadWait) -> list[Any]:
    """Write a wait for a load; its places are those of this process."""
    return [wait.seconds, wait.if_soon]


def read_load_wait(row: Sequence[Any], place: Place | None = None) -> LoadWait:
    """Read it, with places of this process."""
    seconds, if_soon = row
    wait = LoadWait(float(seconds), bool(if_soon))
    return wait if place is None else replace(wait, place=place)


def pack_for_tokenizer(request: TokenizeRequest | DecodeRequest) -> tuple[bytes, list[bytes]]:
    """Write what is asked of a model's tokenizer: what the texts or lists of ids share, and each of them."""
    told: dict[str, Any] = {"special": request.special, "load_wait": load_wait_row(request.load_wait)}
    if isinstance(request, DecodeRequest):
        return pack(told), [pack(list(ids)) for ids in request.ids]
    return pack({**told, "most": request.most}), [pack(text) for text in request.texts]


def read_tokens(packed: bytes) -> list[Token]:
    """Read the tokens of one text."""
    rows: Any = unpack(packed)
    return [Token(*row[:3], start=row[3], stop=row[4]) for row in rows]


def _told(item: Item) -> dict[str, Any]:
    if item.text is not None and _BESIDE_TEXT(item) == _NONE_BESIDE:
        return {"text": item.text}  # as most items are
    return {name: _plain(value) for name, value in _ITEM.told(item).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Media):
        return _MEDIA.told(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value


def _map(packed: bytes | memoryview) -> dict[str, Any]:
    try:
        value = unpack(packed, most=MOST_VALUES)
    except WireError as error:
        raise FrameError(f"a section cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise FrameError("a section is no map")
    return value

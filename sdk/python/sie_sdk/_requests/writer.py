"""Writing a request: where it goes, its headers, its body in either format.

It knows nothing of answers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from sie_sdk import __version__, wire
from sie_sdk._requests.media import MEDIA, item_media
from sie_sdk.types import ItemLike, WireFormat

LARGE_BYTES: Final = 2**18
"""From here on, packing or reading a body would hold up an event loop for milliseconds."""

_MEDIA_TYPES = {"msgpack": wire.MEDIA_TYPE, "json": "application/json"}


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the requests of one client."""

    base_url: str
    api_key: str | None
    wire_format: WireFormat

    def url(self, *path: str) -> str:
        """Return the address of a path, a part of which may be a model id: ids stand unescaped, slashes included.

        Raises:
            ValueError: The id is empty or has a segment `.` or `..`, which would name another route.
        """
        for part in path:
            if any(segment in ("", ".", "..") for segment in part.split("/")):
                raise ValueError(f"{part!r} is no model id: it must not be empty, nor hold empty, `.` or `..` segments")
        return "/".join([self.base_url, *(quote(part, safe="/:@._-~+") for part in path)])

    def headers(self, gpu: str | None = None, priority: str | None = None, *, with_body: bool) -> dict[str, str]:
        """Return the headers of a request; `gpu` is a machine profile, or `pool/profile`."""
        headers = {"X-SIE-SDK-Version": __version__, "Accept": "application/json"}
        if with_body:
            headers |= {"Accept": _MEDIA_TYPES[self.wire_format], "Content-Type": _MEDIA_TYPES[self.wire_format]}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        if gpu:
            pool, slash, profile = gpu.partition("/")
            headers["X-SIE-MACHINE-PROFILE"] = profile if slash else pool
            if slash:
                headers["X-SIE-Pool"] = pool
        if priority:
            headers["X-SIE-Priority"] = priority
        return headers

    def body(self, fields: Mapping[str, Any]) -> bytes:
        """Return the body; in JSON, arrays become lists and bytes base64.

        Raises:
            ValueError: A value has no form in the format.
        """
        if self.wire_format == "msgpack":
            return wire.pack(fields)
        try:
            return json.dumps(fields, default=_to_json, allow_nan=False, ensure_ascii=False).encode()
        except TypeError as error:
            raise ValueError(f"the request has no form in JSON: {error}") from error


def as_items(items: ItemLike | Sequence[ItemLike]) -> tuple[list[Mapping[str, Any]], bool]:
    """Return the items as maps, and whether a single one was given.

    Raises:
        TypeError: Something else than an item, a string or a sequence of them was given, or a medium is none.
        ValueError: An image or a file cannot be read.
    """
    single = isinstance(items, (str, Mapping))
    sequence = [items] if single else items
    if not isinstance(sequence, Sequence) or isinstance(sequence, (bytes, bytearray, memoryview)):
        raise TypeError(f"items is a {type(items).__name__}; give an Item, a dict, a string or a list of them")
    return [as_item(item, f"items[{place}]") for place, item in enumerate(sequence)], single


def as_item(item: object, where: str) -> Mapping[str, Any]:
    """Return one item as a map; `where` is its place in the request.

    Raises:
        TypeError: It is neither an item nor a string, or a medium of it is none.
        ValueError: An image or a file of it cannot be read.
    """
    if isinstance(item, str):
        return {"text": item}
    if isinstance(item, Mapping):
        return item_media(item, where)
    raise TypeError(f"{where} is a {type(item).__name__}; give an Item, a dict or a string")


def are_large(items: object) -> bool:
    """Whether making maps of items, and a body of those, takes long: they have media, or much text."""
    size = 0
    several = isinstance(items, Sequence) and not isinstance(items, (str, bytes, bytearray, memoryview))
    for item in items if several else [items]:  # type: ignore[attr-defined]
        if isinstance(item, Mapping) and any(item.get(name) is not None for name in MEDIA):
            return True
        text = item.get("text") if isinstance(item, Mapping) else item
        size += len(text) if isinstance(text, str) else 0
        if size > LARGE_BYTES:
            return True
    return False


def size_of(item: Mapping[str, Any]) -> int:
    """Return about how many bytes an item's map takes on the wire: what its text and its media take."""
    media = [*(item.get("images") or ()), *(item.get(name) for name in MEDIA if name != "images")]
    text = item.get("text")
    return (len(text) if isinstance(text, str) else 0) + sum(len(each["data"]) for each in media if each)


def _to_json(value: object) -> object:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is neither JSON nor NumPy nor bytes")

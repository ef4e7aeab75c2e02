"""Writing a request: where it goes, its headers, its body in either format.

It knows nothing of answers.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from sie_sdk import __version__, wire
from sie_sdk._requests.headers import checked
from sie_sdk._requests.media import MEDIA, item_media
from sie_sdk.types import ItemLike, WireFormat

LARGE_BYTES: Final = 2**18
"""From here on, packing or reading a body would hold up an event loop for milliseconds."""

_LEVELS: Final = 8
"""Of maps and lists that the path of what cannot be sent goes down to; a list may hold itself."""
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
        """Return the headers of a request; `gpu` is a machine profile, or `pool/profile`.

        Raises:
            ValueError: No header can carry one of the arguments.
            TypeError: One of them is no string.
        """
        headers = {"X-SIE-SDK-Version": __version__, "Accept": "application/json"}
        if with_body:
            headers |= {"Accept": _MEDIA_TYPES[self.wire_format], "Content-Type": _MEDIA_TYPES[self.wire_format]}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        if gpu:
            pool, slash, profile = checked("gpu", gpu).partition("/")
            headers["X-SIE-MACHINE-PROFILE"] = (profile if slash else pool).strip()
            if slash:
                headers["X-SIE-Pool"] = pool.strip()
        if priority:
            headers["X-SIE-Priority"] = checked("priority", priority)
        if "opentelemetry.trace" in sys.modules:  # by whoever traces the calls of this client
            from opentelemetry.propagate import inject

            inject(headers)
        return headers

    def body(self, fields: Mapping[str, Any]) -> bytes:
        """Return the body; in JSON, arrays become lists and bytes base64.

        Raises:
            WireError: A value has no form in the format; names its place.
        """
        write = wire.pack if self.wire_format == "msgpack" else _as_json
        try:
            return write(fields)
        except (ValueError, TypeError, RecursionError) as error:
            place, value = _culprit(fields, write)
            raise wire.WireError(f"{place.removeprefix('.') or 'the request'} {_fault(value, error)}") from error


def _as_json(value: object) -> bytes:
    return json.dumps(value, default=_to_json, allow_nan=False, ensure_ascii=False).encode()


def _culprit(value: object, write: Callable[[object], bytes], levels: int = _LEVELS) -> tuple[str, object]:
    """Find the innermost part of a value that cannot be written: its path, as `.items[3].text`, and itself."""
    if isinstance(value, Mapping):
        parts = [(f".{key}", part) for key, part in value.items()]
    else:
        parts = [(f"[{at}]", part) for at, part in enumerate(value)] if isinstance(value, (list, tuple)) else []
    for name, part in parts if levels else ():
        try:
            write(part)
        except (ValueError, TypeError, RecursionError):
            inner, culprit = _culprit(part, write, levels - 1)
            return name + inner, culprit
    return "", value


def _fault(value: object, error: Exception) -> str:
    if isinstance(value, str) and isinstance(error.__cause__ or error, UnicodeEncodeError):
        at = next(at for at, letter in enumerate(value) if "\ud800" <= letter <= "\udfff")
        what = f"has half of a surrogate pair, U+{ord(value[at]):04X}, at character {at}"
        return f"{what}, which is no text in UTF-8; `text.encode('utf-8', 'replace').decode()` replaces it"
    return f"cannot be sent: {error}"


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

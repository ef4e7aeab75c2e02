"""The one codec of the wire: strict, bounded msgpack in which NumPy arrays travel as their bytes.

It knows no route, no field and no error code: what a body means is for its callers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import NDArray

MEDIA_TYPE: Final = "application/msgpack"
"""The media type of what `pack` returns."""
MAX_DEPTH: Final = 160
"""How deep maps and lists may nest: the 128 levels an output schema may have, and room for what is around it."""
MAX_LENGTH: Final = 131_072
"""How many entries one map or list may have. A reader allocates a list when it reads its claimed length, so this
also bounds what a short hostile body can cost."""
MAX_DIMS: Final = 8
"""How many dimensions an array may have."""
LARGE: Final = 2**20
"""Bytes from which `pack_with_arrays` copies an array, or bytes, by itself."""

_DTYPES: Final = frozenset(
    [order + kind for order in "<>" for kind in ("f2", "f4", "f8", "i2", "i4", "i8", "u2", "u4", "u8")]
    + ["|b1", "|i1", "|u1"]
)
_ARRAY_KEYS: Final = frozenset([b"nd", b"type", b"shape", b"data"])
_SCALAR_KEYS: Final = frozenset([b"nd", b"type", b"data"])

DTYPE_LABELS: Final[Mapping[str, np.dtype[Any]]] = MappingProxyType(
    {
        "float32": np.dtype("<f4"),
        "float16": np.dtype("<f2"),
        "int8": np.dtype("i1"),
        "uint8": np.dtype("u1"),
        "binary": np.dtype("u1"),
    }
)
"""What a `dtype` label beside an array says its values are; `binary` packs eight dimensions in a byte."""


BUFFER_BYTES = 1 << 12
"""What packing one value takes at first; it grows. The library's 256 KB are not there where memory lacks."""


class WireError(ValueError):
    """The bytes are not a message of this wire, or the value cannot become one; the text says what is wrong."""


def pack(value: object) -> bytes:
    """Encode `value`: None, bool, int, float, str, bytes, list, tuple, dict, NumPy arrays and scalars.

    Arrays are written in C order as their own bytes; they never become Python lists.

    Raises:
        WireError: A part of it has no form on the wire.
    """
    try:
        packed: bytes = msgpack.packb(value, default=_encode_numpy, buf_size=BUFFER_BYTES)
    except WireError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise WireError(f"the value cannot be packed: {error}") from error
    return packed


def pack_each(values: Iterable[object]) -> list[bytes]:
    """Encode each of `values` as `pack` does: small ones in half the time, as they share a buffer.

    Raises:
        WireError: As `pack`.
    """
    packer = msgpack.Packer(default=_encode_numpy)
    try:
        return [packer.pack(value) for value in values]
    except WireError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise WireError(f"a value cannot be packed: {error}") from error


class Made:
    """A list whose entries are made of others as they are packed, so that long ones are never all there.

    Args:
        of: What they are made of.
        make: Makes one.
    """

    __slots__ = ("_make", "_of")

    def __init__(self, of: Sequence[Any], make: Callable[[Any], object]) -> None:
        self._of, self._make = of, make

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, part: slice) -> list[object]:
        return [self._make(each) for each in self._of[part]]


def pack_in_parts(fields: Mapping[str, object], entries: int = 1024) -> bytes:
    """Encode a map to the same bytes as `pack`, its longest lists `entries` at a time; they may be `Made`.

    msgpack holds the interpreter's lock for a whole call; between two parts other threads may run.

    Raises:
        WireError: As `pack`.
    """
    if not any(isinstance(value, list | Made) and len(value) > entries for value in fields.values()):
        return pack({key: value[:] if isinstance(value, Made) else value for key, value in fields.items()})
    packer = msgpack.Packer()
    parts: list[bytes] = [packer.pack_map_header(len(fields))]
    for key, value in fields.items():
        parts.append(pack(key))
        if not isinstance(value, list | Made):
            parts.append(pack(value))
            continue
        parts.append(packer.pack_array_header(len(value)))
        for start in range(0, len(value), entries):
            part = value[start : start + entries]
            parts.append(pack(part)[len(packer.pack_array_header(len(part))) :])
    return b"".join(parts)


def pack_with_arrays(fields: Mapping[str, object]) -> memoryview:
    """Encode a map to the same bytes as `pack`, its arrays and bytes of a megabyte and more while other threads run.

    msgpack copies each of them twice, and holds the interpreter's lock meanwhile.

    Args:
        fields: The map.

    Raises:
        WireError: As `pack`.
    """
    pieces = list(_pieces(fields))
    whole = np.empty(sum(map(len, pieces)), np.uint8)
    start = 0
    for piece in pieces:
        whole[start : start + len(piece)] = np.frombuffer(piece, np.uint8)  # gives the lock up
        start += len(piece)
    return whole.data.toreadonly()


def pack_with_items(head: Mapping[str, object], items: Sequence[bytes], key: str = "items") -> bytes:
    """Encode the map `{**head, key: items}` where each item is what `pack` returned for it; the items are not read.

    Raises:
        WireError: `head` has `key` already, or a part of it has no form on the wire.
    """
    return b"".join((pack_before_items(head, len(items), key), *items))


def pack_before_items(head: Mapping[str, object], count: int, key: str = "items") -> bytes:
    """Encode what stands before `count` items in the message of `pack_with_items`; they are to follow in order.

    Raises:
        WireError: As `pack_with_items`.
    """
    if key in head:
        raise WireError(f"the key {key!r} is in the head already")
    packer, packed = msgpack.Packer(), pack(head)
    begun = len(packer.pack_map_header(len(head)))
    return b"".join((packer.pack_map_header(len(head) + 1), packed[begun:], pack(key), packer.pack_array_header(count)))


def unpack(
    data: bytes | bytearray | memoryview, *, most: int | None = None, longest: int | None = MAX_LENGTH
) -> object:
    """Decode one message: its maps are dicts with str keys, its lists are lists, its arrays read-only views.

    Args:
        data: The message.
        most: How many values and keys its maps and lists may hold altogether; None for any number. A byte of a message
            may be seventy of memory.
        longest: How many entries one map or list may have. None allows any number, as `pack` does: only for messages
            of a trusted writer, as the length that a list claims is allocated, eight bytes for each of the message.

    Raises:
        WireError: The bytes are cut short, go on after the message, nest too deep, are too many, in one map or list or
            altogether, hold an extension type, a key that is no string, or an array whose parts contradict each other.
    """
    count = None if most is None or len(data) <= most else _Count(most)
    length = len(data) if longest is None else longest  # an entry takes a byte at least
    try:
        value: object = msgpack.unpackb(
            data,
            object_hook=_decode_map if count is None else count.map,
            list_hook=None if count is None else count.list,
            ext_hook=_refuse_extension,
            strict_map_key=True,
            max_array_len=length,
            max_map_len=length,
            max_ext_len=0,
        )
    except WireError:
        raise
    except (ValueError, TypeError, BufferError, MemoryError, msgpack.UnpackException) as error:
        raise WireError(_explain(error)) from error
    _check_depth(value)
    return value


class _Count:
    """Counts what the maps and lists of a message hold; called as each of them ends."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most

    def map(self, fields: dict[str | bytes, Any]) -> object:
        self._take(2 * len(fields))
        return _decode_map(fields)

    def list(self, entries: list[Any]) -> list[Any]:
        self._take(len(entries))
        return entries

    def _take(self, entries: int) -> None:
        self._left -= entries
        if self._left < 0:
            raise WireError(f"the message holds more than {self._most} values")


def _encode_numpy(value: object) -> dict[bytes, object]:
    """Encode as msgpack-numpy does (its published format: bin keys, C order), byte for byte."""
    if isinstance(value, np.ndarray):
        kind = _allowed(value.dtype)
        if value.ndim > MAX_DIMS:
            raise WireError(f"an array of {value.ndim} dimensions cannot be packed; at most {MAX_DIMS} are allowed")
        data = np.asarray(value, order="C").data
        return {b"nd": True, b"type": kind, b"kind": b"", b"shape": value.shape, b"data": data}
    if isinstance(value, np.generic):
        return {b"nd": False, b"type": _allowed(value.dtype), b"data": value.tobytes()}
    if isinstance(value, int):
        raise WireError(f"the integer {_short(value)} has more than 64 bits")
    raise WireError(f"a {type(value).__name__} cannot be packed; numbers, text, bytes, lists, maps and NumPy can")


def _pieces(value: object) -> Iterator[bytes | memoryview]:
    """Yield what `pack` makes of a value, large bytes and the data of large arrays as they are."""
    if isinstance(value, np.ndarray) and LARGE <= value.nbytes < 2**32:
        fields = _encode_numpy(value)
        data = memoryview(fields.pop(b"data")).cast("B")  # type: ignore[arg-type]
        header = msgpack.Packer().pack_map_header(len(fields) + 1)
        yield header + pack(fields)[len(header) :] + pack(b"data") + b"\xc6" + len(data).to_bytes(4, "big")
        yield data
    elif isinstance(value, bytes) and LARGE <= len(value) < 2**32:
        yield b"\xc6" + len(value).to_bytes(4, "big")
        yield value
    elif isinstance(value, list):
        yield msgpack.Packer().pack_array_header(len(value))
        for each in value:
            yield from _pieces(each)
    elif isinstance(value, dict):
        yield msgpack.Packer().pack_map_header(len(value))
        for key, each in value.items():
            yield pack(key)
            yield from _pieces(each)
    else:
        yield pack(value)


def _decode_map(fields: dict[str | bytes, Any]) -> object:
    if b"nd" in fields:
        return _decode_array(fields)
    for key in fields:
        if type(key) is not str:
            raise WireError(f"the map key {_short(key)} is binary; keys are strings")
    return fields


def _decode_array(fields: dict[str | bytes, Any]) -> NDArray[Any] | np.generic:
    is_array = fields[b"nd"]
    if type(is_array) is not bool:
        raise WireError(f"an array's `nd` is {_short(is_array)}; true and false are allowed")
    if fields.pop(b"kind", b"") not in (b"", "") or fields.keys() != (_ARRAY_KEYS if is_array else _SCALAR_KEYS):
        raise WireError("an array has the keys nd, type, kind (empty), shape, data; a scalar nd, type, data")
    dtype = _dtype(fields[b"type"])
    data = fields[b"data"]
    if type(data) is not bytes:
        raise WireError(f"an array's `data` is of type {type(data).__name__}; it must be binary")
    shape = _shape(fields[b"shape"]) if is_array else ()
    if math.prod(shape) * dtype.itemsize != len(data):
        raise WireError(f"an array of shape {list(shape)} and type {dtype.str} cannot have {len(data)} bytes of data")
    try:
        array: NDArray[Any] = np.ndarray(shape, dtype, buffer=data)
    except (ValueError, OverflowError) as error:
        raise WireError(f"an array has the impossible shape {_short(shape)}") from error
    scalar: NDArray[Any] | np.generic = array if is_array else array[()]
    return scalar


def _shape(shape: object) -> tuple[int, ...]:
    if type(shape) is not list or len(shape) > MAX_DIMS or not all(type(dim) is int and dim >= 0 for dim in shape):
        raise WireError(f"an array's `shape` is {_short(shape)}; up to {MAX_DIMS} non-negative integers are allowed")
    return tuple(shape)


def _dtype(name: object) -> np.dtype[Any]:
    if type(name) is not str or name not in _DTYPES:
        raise WireError(f"an array's `type` is {_short(name)}; allowed are {', '.join(sorted(_DTYPES))}")
    return _known_dtype(name)


@lru_cache(maxsize=len(_DTYPES))
def _known_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(name)


@lru_cache(maxsize=64)
def _allowed(dtype: np.dtype[Any]) -> str:
    if dtype.str not in _DTYPES:
        raise WireError(f"the dtype {dtype} cannot be packed; allowed are {', '.join(sorted(_DTYPES))}")
    return dtype.str


def _refuse_extension(code: int, data: bytes) -> object:
    raise WireError(f"the extension type {code} is not allowed")


def _check_depth(value: object) -> None:
    """Walk level by level: the reader itself stops only at 1 024, deeper than other parts of Python recurse."""
    level = [value] if type(value) in (dict, list) else []
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise WireError(f"maps and lists nest deeper than {MAX_DEPTH} levels")
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)  # type: ignore[attr-defined]
            if type(child) in (dict, list)
        ]


def _explain(error: Exception) -> str:
    match error:
        case msgpack.ExtraData():
            return f"{len(error.extra)} bytes follow the end of the message"
        case msgpack.StackError():
            return f"maps and lists nest deeper than {MAX_DEPTH} levels"
        case msgpack.FormatError():
            return "a byte of the message starts no msgpack value"
        case UnicodeDecodeError():
            return "a string is not valid UTF-8"
        case MemoryError():
            return "the message asks for more memory than there is"
    return f"the message is not valid msgpack: {error}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

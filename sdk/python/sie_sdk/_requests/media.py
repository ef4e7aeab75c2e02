"""Images, clips and documents as callers have them, turned into the bytes and formats that travel.

Files and bytes go as they are. Pixels, in a NumPy array or a Pillow image, go as PNG, which loses none of them. It
knows no request.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sie_sdk.types import ImageLike, MediaLike, PillowImage

MEDIA: Final = ("images", "audio", "video", "document")
"""The fields of an item that hold media."""

_SIGNATURES: Final = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"BM", "bmp"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
)
_SAME: Final = {"jpg": "jpeg", "tif": "tiff", "markdown": "md", "htm": "html"}
_COLOUR_TYPES: Final = {1: 0, 2: 4, 3: 2, 4: 6}
"""Channels of an image, and how PNG calls them: grey, grey with alpha, RGB, RGBA."""
_PNG_MODES: Final = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
_WITH_ALPHA: Final = {"PA": "RGBA", "RGBa": "RGBA", "La": "LA"}
"""Pillow's modes with transparency that PNG does not have, and what they become."""
_FAST: Final = 1


def item_media(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return an item whose media travel as maps of `data` and `format`.

    Raises:
        ValueError: One of them cannot be read, or is not what it is said to be; names its place.
        TypeError: One of them is of a kind that is no medium.
    """
    ready = dict(item)
    if ready.get("images") is not None:
        _check_list(ready["images"], f"{where}.images")
        ready["images"] = [_image(image, f"{where}.images[{place}]") for place, image in enumerate(ready["images"])]
    for name in MEDIA[1:]:
        if ready.get(name) is not None:
            ready[name] = _file(ready[name], f"{where}.{name}")
    return ready


def _check_list(images: object, where: str) -> None:
    """Refuse one image in place of a list: a text is a sequence of letters, and an array one of rows."""
    one = isinstance(images, (str, os.PathLike, bytes, bytearray, memoryview, Mapping, PillowImage))
    if one or (isinstance(images, np.ndarray) and images.ndim < 4):
        shape = f" of shape {images.shape}" if isinstance(images, np.ndarray) else ""
        raise TypeError(f"{where} is one {type(images).__name__}{shape}; give a list of images")


def _image(image: ImageLike, where: str) -> dict[str, Any]:
    if isinstance(image, np.ndarray):
        return {"data": png(image, where), "format": "png"}
    if isinstance(image, PillowImage) and not isinstance(image, Mapping):
        return {"data": _saved(image), "format": "png"}
    media = _read(image, where)
    found, said = image_format(media["data"]), media.get("format")
    if found and said and found != _plain(said):
        raise ValueError(f"{where} is said to be {said} and its bytes are {found}; correct `format`, or leave it out")
    return {**media, "format": found} if found else media


def _file(media: MediaLike, where: str) -> dict[str, Any]:
    ready = _read(media, where)
    if isinstance(media, (str, os.PathLike)) and (suffix := Path(media).suffix):
        ready["format"] = _plain(suffix[1:])
    return ready


def _read(media: object, where: str) -> dict[str, Any]:
    if isinstance(media, Mapping):
        if not isinstance(media.get("data"), (bytes, bytearray, memoryview)):
            raise TypeError(f"{where} is a map without bytes in `data`; give {{'data': b'…', 'format': …}}")
        return {**media, "data": bytes(media["data"])}
    if isinstance(media, (bytes, bytearray, memoryview)):
        return {"data": bytes(media)}
    if isinstance(media, (str, os.PathLike)):
        try:
            return {"data": Path(media).read_bytes()}
        except (OSError, ValueError) as error:
            raise ValueError(f"{where} names the file {media!r}, which cannot be read: {error}") from error
    raise TypeError(
        f"{where} is a {type(media).__name__}; give a path, bytes, a map with `data`, or pixels of an image"
    )


def image_format(data: bytes) -> str | None:
    """Tell an image's format by its first bytes; None for any that is none of the known."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((name for signature, name in _SIGNATURES if data.startswith(signature)), None)


def png(pixels: NDArray[Any], where: str = "the array") -> bytes:
    """Write pixels as a PNG file.

    Args:
        pixels: uint8, of shape (height, width) for grey or (height, width, channels) for 1 to 4 channels.
        where: What to call it in an error.

    Raises:
        ValueError: It has another dtype or shape.
    """
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or channels not in _COLOUR_TYPES or not pixels.size:
        raise ValueError(
            f"{where} is an array of dtype {pixels.dtype} and shape {pixels.shape}; pixels are uint8 of shape "
            "(height, width), or (height, width, channels) with 1 to 4 channels"
        )
    height, width = pixels.shape[:2]
    rows: NDArray[np.uint8] = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = pixels.reshape(height, width * channels)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), _FAST)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _saved(image: PillowImage) -> bytes:
    """Save a Pillow image; a mode that PNG does not have becomes RGB, or what keeps its transparency."""
    buffer = io.BytesIO()
    ready = image if image.mode in _PNG_MODES else image.convert(_WITH_ALPHA.get(image.mode, "RGB"))
    ready.save(buffer, format="PNG", compress_level=_FAST)
    return buffer.getvalue()


def _plain(name: str) -> str:
    return _SAME.get(name.lower(), name.lower())

"""Decodes image files to RGB pictures; refuses damaged files, other formats than stated, and pictures too large once
decoded.

The size is read from the header before a pixel is decoded. As in transformers, transparent pixels are put on white, and
an EXIF orientation is not applied.
"""

from __future__ import annotations

import io

from PIL import Image

from sie_core.contracts import MAX_IMAGE_ASPECT, MAX_IMAGE_PIXELS, MAX_REQUEST_PIXELS, InvalidInput, Media
from sie_pytorch.families.vision.parts import too_many

Image.init()
FORMATS = tuple(name for name in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "MPO") if name in Image.OPEN)
"""Pillow's names of the formats that are read. Other decoders run code that was never meant for untrusted bytes."""
SAME = {"JPG": "JPEG", "MPO": "JPEG", "TIF": "TIFF"}
"""A photo of several pictures (MPO) is the JPEG it begins with."""
ALLOWED = ", ".join(name for name in FORMATS if name not in SAME)


class Decoder:
    """Decodes the images of one request, and counts their pixels."""

    def __init__(self) -> None:
        self._pixels = 0

    def decode(self, media: Media, where: str) -> Image.Image:
        """Decode the image at `where` in the request to mode RGB.

        Raises:
            InvalidInput: It is no image, damaged, in another format than `media` says, several pictures, or too large.
        """
        if problem := too_many(media.data):
            raise _invalid(where, f"{problem}: save it anew, with an encoder's defaults.")
        image = _open(media.data, where)
        try:
            self._check(image, media.format, where)
            return to_rgb(image)
        except (InvalidInput, MemoryError):
            raise
        except Exception as error:
            # Each format has its own decoder, with its own kinds of failures.
            raise _invalid(
                where, f"is damaged or cut off: it begins as {_name(image)} and cannot be decoded as that."
            ) from error

    def _check(self, image: Image.Image, said: str | None, where: str) -> None:
        width, height = image.size
        if width * height > MAX_IMAGE_PIXELS:
            raise _invalid(
                where, f"has {width} × {height} pixels; {MAX_IMAGE_PIXELS:,} are allowed: send it in a smaller size."
            )
        if max(width, height) > MAX_IMAGE_ASPECT * min(width, height):
            raise _invalid(
                where,
                f"has {width} × {height} pixels; one edge may be up to {MAX_IMAGE_ASPECT} times as long as the other.",
            )
        self._pixels += width * height
        if self._pixels > MAX_REQUEST_PIXELS:
            raise _invalid(
                where,
                f"brings the images of the request to {self._pixels:,} pixels; {MAX_REQUEST_PIXELS:,} are allowed: "
                "split the request.",
            )
        if said and _plain(said) != _name(image):
            raise _invalid(where, f"is said to be {said!r}, and its bytes are {_name(image)}: correct its `format`.")
        if image.format != "MPO" and getattr(image, "is_animated", False):
            raise _invalid(where, "holds several pictures, and one vector stands for one: send the one that is meant.")


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert a picture of any mode to RGB; transparent pixels are composited on white."""
    if "A" not in image.getbands() and image.info.get("transparency") is None:
        return image.convert("RGB")
    picture = image if image.mode == "RGBA" else image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")


def _open(data: bytes, where: str) -> Image.Image:
    """Read the header."""
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise _invalid(where, f"has more than {MAX_IMAGE_PIXELS:,} pixels: send it in a smaller size.") from error
    except MemoryError:
        raise
    except Exception as error:
        raise _invalid(where, f"is no image that can be read; allowed: {ALLOWED}.") from error


def _name(image: Image.Image) -> str:
    name = image.format or "an image"
    return SAME.get(name, name)


def _plain(said: str) -> str:
    """Normalise a client's name of a format, a suffix or a media type."""
    name = said.strip().upper().removeprefix("IMAGE/").removeprefix(".")
    return SAME.get(name, name)


def _invalid(where: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{where} {problem}", param=where)

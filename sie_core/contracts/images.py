"""How large an image may be before anyone decodes it: a few bytes of a file may stand for gigabytes of pixels.

A family reads the size from the file's header and refuses more, with `InvalidInput` that names `items[0].images[0]`.
"""

from __future__ import annotations

from typing import Final

MAX_IMAGE_PIXELS: Final = 89_478_485
"""Pixels of one image: a quarter of a gigabyte in RGB, and what Pillow warns of by itself."""
MAX_REQUEST_PIXELS: Final = 2**30
"""Pixels of all images of one request: they are decoded one after the other, on one thread."""
MAX_IMAGE_ASPECT: Final = 200
"""How many times longer one edge may be than the other: resizing by the shorter one blows the longer one up."""

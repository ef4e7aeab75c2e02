"""The limits on images, checked before decoding: a small file can decode to gigabytes of pixels.

A family reads the size from the file's header and refuses more, with `InvalidInput` that names `items[0].images[0]`.
"""

from __future__ import annotations

from typing import Final

MAX_IMAGE_PIXELS: Final = 89_478_485
"""Bound on the pixels of one image: a quarter of a gigabyte in RGB; Pillow warns from the same size on."""
MAX_REQUEST_PIXELS: Final = 2**30
"""Pixels of all images of one request: they are decoded one after the other, on one thread."""
MAX_IMAGE_SCANS: Final = 100
"""Scans of a JPEG: each passes over all pixels. Encoders write about ten."""
MAX_IMAGE_PARTS: Final = 2**16
"""Segments of a JPEG and chunks of a PNG."""
MAX_IMAGE_ASPECT: Final = 200
"""The largest ratio of an image's edges: resizing by the shorter one enlarges the longer one."""

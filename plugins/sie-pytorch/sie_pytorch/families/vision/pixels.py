"""Converts pictures to a model's input, exactly as the checkpoint's image processor does.

At load, transformers' own processor, in its variant on Pillow and NumPy, is run on each of the 256 levels of a channel,
and compared with this code. After that, a picture stays in bytes up to the device, a quarter of its size in floating
point numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sie_core.contracts import ModelCard, ModelLoadError
from sie_pytorch.families.vision.images import to_rgb

Pixels = NDArray[np.uint8]
LEVELS = 256


class PixelReader:
    """Resizes and crops RGB pictures; several threads may use it at once.

    Attributes:
        size: Height and width of the model's input.
        levels: float32 `[3, 256]`: what each level of each channel becomes, rescaled and normalised.
    """

    def __init__(self, processor: Any, size: int) -> None:
        """Take the processor of a checkpoint whose model sees `size` × `size` pixels.

        Raises:
            ModelLoadError: `CONFIG`: it prepares pictures in another way than is known here.
        """
        self._processor = processor
        self.size = size
        self.levels = _levels(processor)
        for shape in ((2 * size + 7, size + 3), (size // 2 + 1, 3 * size), (size, size)):
            self._prove(_noise(shape))
        if getattr(processor, "do_convert_rgb", False):
            for image in _of_every_mode((size, size)):
                self._prove(image)

    def pixels(self, image: Image.Image) -> Pixels:
        """Prepare one RGB picture; uint8 `[3, size, size]`."""
        processor = self._processor
        if processor.do_resize:
            image = image.resize(_target(image.size, processor.size), processor.resample)
        if not processor.do_center_crop:
            return np.ascontiguousarray(np.moveaxis(np.asarray(image), -1, 0))
        cropped: Sequence[Pixels] = processor(
            image, do_resize=False, do_rescale=False, do_normalize=False, do_pad=False, return_tensors="np"
        )["pixel_values"]
        return np.ascontiguousarray(cropped[0])

    def _prove(self, image: Image.Image) -> None:
        """Compare one picture with the result of the processor itself."""
        expected = self._processor(image, return_tensors="np")["pixel_values"][0]
        if expected.shape != (3, self.size, self.size):
            raise ModelLoadError(
                "CONFIG",
                f"The image processor's files make pictures of shape {expected.shape}, and the model sees "
                f"{self.size} × {self.size} pixels.",
            )
        found = self.pixels(to_rgb(image))
        if not np.array_equal(self.levels[np.arange(3)[:, None, None], found], expected):
            raise ModelLoadError(
                "CONFIG",
                "The image processor's files ask for steps beyond resize, crop, rescale and normalise, or it converts "
                f"pictures of mode {image.mode} in another way than compositing them on white.",
            )


def load_pixel_reader(card: ModelCard, size: int) -> PixelReader:
    """Build the reader of a checkpoint from its `preprocessor_config.json` or `processor_config.json`.

    Raises:
        ModelLoadError: `CONFIG`: the file is missing, or not understood.
    """
    from transformers import AutoImageProcessor

    try:
        # Pillow is used even if torchvision is installed: the same picture gives the same numbers on every machine.
        processor = AutoImageProcessor.from_pretrained(str(card.path), local_files_only=True, backend="pil")
        return PixelReader(processor, size)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelLoadError(
            "CONFIG",
            "The image processor cannot be built: preprocessor_config.json is missing, or is not one that transformers "
            "reads.",
        ) from error


def _target(size: tuple[int, int], wanted: Any) -> tuple[int, int]:
    """Return the size (width, height) to which a picture is resized."""
    if wanted.height and wanted.width:
        return wanted.width, wanted.height
    if not wanted.shortest_edge or wanted.longest_edge:
        raise ModelLoadError("CONFIG", f"The image processor's files resize pictures by {wanted}.")
    short, long = min(size), max(size)
    edge = int(wanted.shortest_edge)
    longer = int(edge * long / short)
    return (edge, longer) if size[0] <= size[1] else (longer, edge)


def _levels(processor: Any) -> NDArray[np.float32]:
    """Have the processor rescale and normalise every level."""
    ramp = np.broadcast_to(np.arange(LEVELS, dtype=np.uint8)[None, :, None], (8, LEVELS, 3))
    image = Image.fromarray(np.ascontiguousarray(ramp))
    made = processor(image, do_resize=False, do_center_crop=False, do_pad=False, return_tensors="np")["pixel_values"]
    return np.ascontiguousarray(made[0][:, 0], dtype=np.float32)


def _of_every_mode(size: tuple[int, int]) -> Iterator[Image.Image]:
    """Draw pictures that only the right conversion to RGB makes the same, whatever is transparent in them."""
    image = _noise(size)
    image.putalpha(_noise((size[0] + 1, size[1])).resize(size).convert("L"))
    yield from (image.convert(mode) for mode in ("RGBA", "LA", "L", "1", "P", "CMYK"))
    for mode, transparent in (("P", 0), ("L", 0), ("1", 0), ("RGB", (0, 0, 0)), ("P", bytes(range(LEVELS)))):
        keyed = image.convert("RGB").convert(mode)
        keyed.paste(0, (0, 0, size[0] // 2, size[1]))
        keyed.info["transparency"] = transparent
        yield keyed


def _noise(size: tuple[int, int]) -> Image.Image:
    """Draw a picture of that width and height that any difference in its preparation changes."""
    levels = np.random.default_rng(size[0]).integers(0, LEVELS, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(levels)

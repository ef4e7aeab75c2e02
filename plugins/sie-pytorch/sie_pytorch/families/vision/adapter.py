"""The family `pytorch-vision`: models that embed images and texts into one space, such as CLIP and SigLIP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from sie_text.encode import TextPreparation
from sie_text.sequences import TokenSequence

from sie_core.contracts import Adapter, InvalidInput, Item, ItemOutput, Task, Unit, device_errors
from sie_pytorch.families.vision.images import Decoder
from sie_pytorch.families.vision.pixels import PixelReader, Pixels
from sie_pytorch.forward.transfers import HostCopy, Transfers

if TYPE_CHECKING:
    from sie_pytorch.families.vision.padding import Padding
    from sie_pytorch.families.vision.towers import Towers

TEXT, IMAGE = "text", "image"
"""The inference keys. Texts and images go through different towers and share no batch."""
LEAST_LENGTH = 1e-12
"""Lower bound of the norm that a vector is divided by, as in PyTorch's `normalize`."""


@dataclass(frozen=True, slots=True)
class Row:
    """A text or an image, ready for its tower."""

    content: TokenSequence | Pixels
    normalize: bool


class VisionEncoder(Adapter):
    """A model of images and texts. An item is either a text or an image, and gives one vector."""

    def __init__(
        self,
        model: str,
        preparation: TextPreparation,
        padding: Padding,
        reader: PixelReader,
        towers: Towers,
        transfers: Transfers,
        *,
        normalizes: bool,
        threads: int,
    ) -> None:
        self._name = model
        self._preparation = preparation
        self._padding = padding
        self._reader = reader
        self._towers = towers
        self._transfers = transfers
        self._normalizes = normalizes
        self._threads = threads

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise texts and decode images lazily; an image costs its patches, a text its tokens.

        Raises:
            InvalidInput: An item is neither or both, an image cannot be read, or an option is wrong.
        """
        normalize = bool(task.options.get("normalize", self._normalizes))
        for place, item in enumerate(items):
            self._check(item, f"items[{place}]")
        texts, decoder = self._texts(items, task, normalize), Decoder()
        for place, item in enumerate(items):
            if item.images:
                pixels = self._reader.pixels(decoder.decode(item.images[0], f"items[{place}].images[0]"))
                yield Unit(place, self._towers.patches, IMAGE, payload=Row(pixels, normalize), nbytes=pixels.nbytes)
            else:
                yield next(texts)

    def passed_over(self, task: Task) -> tuple[str, ...]:
        """Name `input_type` if no prompt is of that role."""
        return self._preparation.prompts.passed_over(task)

    def run(self, units: Sequence[Unit]) -> HostCopy:
        """Run one batch of texts or of images to `[units, dims]`.

        Raises:
            OutOfDeviceMemory: The device has no room for it.
        """
        if torch.get_num_threads() != self._threads:
            # A thread that used PyTorch before the load keeps the number it had then.
            torch.set_num_threads(self._threads)
        contents = [unit.payload.content for unit in units]
        with device_errors(), torch.inference_mode():
            if units[0].key == IMAGE:
                features = self._towers.images(contents)
            else:
                ids, mask = self._padding.fill([row.ids for row in contents])
                features = self._towers.texts(ids, mask if self._padding.masked else None)
            return self._transfers.download(features)

    def await_device(self, units: Sequence[Unit], raw: HostCopy) -> bool:
        """Wait for the vectors."""
        raw.land()
        return True

    def finish(self, units: Sequence[Unit], raw: HostCopy) -> Sequence[ItemOutput]:
        """Give each unit its vector, normalised if requested."""
        return [_output(row, unit.payload.normalize) for unit, row in zip(units, raw.wait(), strict=True)]

    def unload(self) -> None:
        """Free the weights now; the engine frees PyTorch's cache of them."""
        del self._towers

    def _check(self, item: Item, where: str) -> None:
        """Refuse an item that is not one text or one image."""
        texts = (item.text is not None) + (item.token_ids is not None)
        if len(item.images) > 1:
            problem, param = f"holds {len(item.images)} images", f"{where}.images"
        elif texts and item.images:
            problem, param = "holds a text and an image", where
        elif not texts and not item.images:
            problem, param = "holds neither", where
        else:
            return
        raise InvalidInput(
            f"{param} {problem}, and {self._name} makes one vector of one text or one image: send an item for each.",
            param=param,
        )

    def _texts(self, items: Sequence[Item], task: Task, normalize: bool) -> Iterator[Unit]:
        places = [place for place, item in enumerate(items) if not item.images]
        texts = self._preparation.sequences([items[place] for place in places], task, places)
        return (self._text(place, text, normalize) for place, text in zip(places, texts, strict=True))

    def _text(self, place: int, text: TokenSequence, normalize: bool) -> Unit:
        tokens = len(text.ids)
        cost = max(1, self._padding.length or tokens)
        return Unit(
            place, cost, TEXT, payload=Row(text, normalize), tokens=tokens, truncated=text.truncated, nbytes=text.nbytes
        )


def _output(vector: NDArray[np.float32], normalize: bool) -> ItemOutput:
    if normalize:
        vector = vector / max(float(np.linalg.norm(vector)), LEAST_LENGTH)
    return ItemOutput(dense=vector.astype(np.float32, copy=False), normalized=normalize)

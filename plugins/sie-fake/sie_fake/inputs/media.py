"""Images and audio as the fakes see them: a name for the bytes, and a cost.

It decodes no image: any bytes are one, except none and those that begin with `corrupt`.
"""

from __future__ import annotations

import hashlib
import io
import wave
from dataclasses import dataclass

from sie_core.contracts import InvalidInput, Item, Media

BYTES_PER_SAMPLE = 2


@dataclass(frozen=True, slots=True)
class MediaRow:
    """The media of one item, in its row."""

    words: tuple[str, ...] = ()
    """One word per image, a hash of its bytes."""
    cost: int = 0
    images: tuple[Media, ...] = ()


NO_MEDIA = MediaRow()


def read_media(item: Item, where: str, chunk: int) -> MediaRow:
    """Read the images and the audio of an item; an image costs 1, audio its samples / `chunk`, rounded up.

    Raises:
        InvalidInput: Something is corrupt; names it.
    """
    words = [_word("image", image, f"{where}.images[{place}]") for place, image in enumerate(item.images)]
    cost = len(item.images)
    if item.audio is not None:
        words.append(_word("audio", item.audio, f"{where}.audio"))
        cost += max(1, -(-_samples(item.audio, f"{where}.audio") // chunk))
    return MediaRow(tuple(words), cost, item.images)


def _word(kind: str, media: Media, param: str) -> str:
    if not media.data or media.data.startswith(b"corrupt"):
        raise InvalidInput(f"{param} cannot be decoded: it is no {kind}", param=param)
    return f"{kind}:{hashlib.sha256(media.data).hexdigest()[:16]}"


def _samples(audio: Media, param: str) -> int:
    """Count the samples of a WAV file, or of bare 16-bit ones."""
    if not audio.data.startswith(b"RIFF"):
        return len(audio.data) // BYTES_PER_SAMPLE
    try:
        with wave.open(io.BytesIO(audio.data)) as clip:
            return int(clip.getnframes())
    except (wave.Error, EOFError) as error:
        raise InvalidInput(f"{param} cannot be decoded: it is no WAV file", param=param) from error

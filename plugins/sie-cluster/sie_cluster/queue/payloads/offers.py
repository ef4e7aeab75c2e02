"""What travels in place of a payload that is larger than a message, and the frames it is fetched in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from sie_cluster.messages.frames import FrameError, wrong

FRAME_BYTES = 512 << 10
"""Of one frame of a payload that its sender holds."""
KEY = re.compile(r"[0-9a-f]{32}")
"""Keys in a payload store, which nobody can guess."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Where a payload can be fetched."""

    subject: str
    """Its sender's: takes questions for frames, and the word that all has come."""
    bytes: Annotated[int, Field(ge=0, strict=True)]
    key: Annotated[str, Field(pattern=f"^{KEY.pattern}$")] | None = None
    """Where it lies in the payload store; None where its sender holds it."""

    def to_map(self) -> dict[str, Any]:
        """Write it for a head."""
        told: dict[str, Any] = _OFFER.dump_python(self, exclude_defaults=True)
        return told

    @classmethod
    def from_map(cls, fields: Any, most: int) -> Offer:
        """Read it.

        Raises:
            FrameError: It is no offer, or one of more than `most` bytes.
        """
        try:
            offer = _OFFER.validate_python(fields)
        except ValidationError as error:
            raise wrong(error) from None
        if offer.bytes > most:
            raise FrameError(f"a payload of {offer.bytes} bytes is beyond the {most} that this process takes")
        return offer


_OFFER = TypeAdapter(Offer)

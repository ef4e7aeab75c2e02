"""What travels in place of a payload that is larger than a message, and the frames it is fetched in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sie_cluster.messages.frames import FrameError

FRAME_BYTES = 512 << 10
"""Of one frame of a payload that its sender holds."""
KEY = re.compile(r"[0-9a-f]{32}")
"""Keys in a payload store, which nobody can guess."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Where a payload can be fetched."""

    subject: str
    """Its sender's: takes questions for frames, and the word that all has come."""
    bytes: int
    key: str | None = None
    """Where it lies in the payload store; None where its sender holds it."""

    def to_map(self) -> dict[str, Any]:
        """Write it for a head."""
        told = {"subject": self.subject, "bytes": self.bytes}
        return told if self.key is None else {**told, "key": self.key}

    @classmethod
    def from_map(cls, fields: Any, most: int) -> Offer:
        """Read it.

        Raises:
            FrameError: It is no offer, or one of more than `most` bytes.
        """
        if not isinstance(fields, Mapping):
            raise FrameError("an offer is no map")
        subject, size, key = fields.get("subject"), fields.get("bytes"), fields.get("key")
        if not isinstance(subject, str) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise FrameError("it is no offer of a payload")
        if key is not None and (not isinstance(key, str) or not KEY.fullmatch(key)):
            raise FrameError("the key of an offer is none of a payload store")
        if size > most:
            raise FrameError(f"a payload of {size} bytes is beyond the {most} that this process takes")
        return cls(subject, size, key)

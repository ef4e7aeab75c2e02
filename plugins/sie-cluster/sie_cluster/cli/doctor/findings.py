"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    state: Literal["ok", "wrong", "note", "skipped"]
    """`note`: it may be meant so."""
    subject: str
    told: str
    remedy: str = ""
    """What mends it; empty where nothing has to be mended."""


def ok(subject: str, told: str) -> Finding:
    """All is well."""
    return Finding("ok", subject, told)


def wrong(subject: str, told: str, remedy: str) -> Finding:
    """It has to be mended."""
    return Finding("wrong", subject, told, remedy)

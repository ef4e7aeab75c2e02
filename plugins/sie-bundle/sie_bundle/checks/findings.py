"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or that an operator should know."""

    where: str
    """File and line."""
    message: str
    """What is wrong, the offending value and the remedy."""
    note: bool = False
    """Whether the bundle can be used all the same."""

    def __str__(self) -> str:
        return f"{self.where}: {'note: ' if self.note else ''}{self.message}"

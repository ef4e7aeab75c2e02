"""What a program says of itself once it is ready: its address, and what a newcomer does next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Announcement:
    """The facts, each of them None where the program does not tell it."""

    url: str
    models: tuple[str, ...] | None = None
    """Some models that are here: a load fetches nothing."""
    example: str | None = None
    """A command that asks one of them."""
    docs: str | None = None
    """The URL of the page that lists the routes."""

    @property
    def headline(self) -> str:
        """Name the address."""
        return f"SIE serves on {self.url}"

    def text(self) -> str:
        """Write all of it for a person."""
        parts = [self.headline]
        if self.models:
            parts.append(f"Models that are here: {', '.join(self.models)} (all: sie models)")
        elif self.models is not None:
            parts.append("No weights of a model are here yet: sie serve org/name fetches those of one from the Hub.")
        if self.example is not None:
            parts.append(f"Ask one:\n\n{self.example}")
        if self.docs is not None:
            parts.append(f"Every route, to read and to try: {self.docs}")
        return "\n\n".join(parts) + ("\n" if len(parts) > 1 else "")

    def facts(self) -> Mapping[str, object]:
        """Return the facts by their names, for the log."""
        told = {"url": self.url, "models": self.models, "example": self.example, "docs": self.docs}
        return {name: value for name, value in told.items() if value is not None}

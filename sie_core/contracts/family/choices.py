"""Measurements and choices of a load, kept for the next load of the same weights on the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class KeptChoice:
    """One choice, as `sie models show` prints it."""

    about: str
    """Subject of the choice, e.g. `runner`."""
    chosen: str
    reason: str
    """The measurement, in words."""
    _: KW_ONLY
    setup: Mapping[str, str] = field(default_factory=dict)
    """Conditions of the choice, other than the weights, the machine and the versions of plugins."""
    settled: bool = True
    """Whether later loads keep to it; if not, the next one measures again."""


class KeptChoices(Protocol):
    """The choices that loads of one folder of weights made. Losing one costs no more than measuring again."""

    def recall(self, about: str, setup: Mapping[str, str]) -> KeptChoice | None:
        """Return the choice kept for this setup; None if there is none, or it is from other versions of the plugins."""
        ...

    def keep(self, choice: KeptChoice) -> None:
        """Keep a choice, in place of an earlier one for the same setup; it is lost if it cannot be written."""
        ...

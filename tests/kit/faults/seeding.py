"""Faults that are planted on purpose: what is broken, of which kind, and the check that has to name it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """One broken part."""

    kind: str
    subject: Any
    check: str | None
    """The check that has to find it; None for a fault that no check finds."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What else the kind needs to set it up."""

    def __str__(self) -> str:
        name = self.given.get("name") or getattr(self.subject, "__name__", None)
        return f"{self.kind}: {name or getattr(self.subject, 'name', type(self.subject).__name__)}"


FAULTS: list[Fault] = []


def fault(kind: str, check: str | None, **given: Any) -> Callable[[T], T]:
    """Plant what is decorated."""

    def plant(subject: T) -> T:
        FAULTS.append(Fault(kind, subject, check, given))
        return subject

    return plant

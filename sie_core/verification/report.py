"""The result of a comparison: as values, as lines of text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["verified", "differs", "not verified"]


@dataclass(frozen=True, slots=True)
class Row:
    """One output, asked in one way, compared with one reference."""

    output: str
    asked: str
    reference: str
    items: int
    deviation: float
    """Largest difference, relative to the reference's largest number if above 1; infinite if outputs cannot be
    compared.
    """
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.deviation <= self.tolerance


@dataclass(frozen=True, slots=True)
class Unverified:
    """An output without a comparison, and the reason."""

    output: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """The comparison of a model's answers with those of its references."""

    model: str
    family: str
    device: str
    precision: str
    """The engine's precision."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """The engine's notes on the model: the runner that served, and why."""
    rows: tuple[Row, ...] = ()
    unverified: tuple[Unverified, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """`verified` if every output was compared and is within the tolerance."""
        if any(not row.passed for row in self.rows):
            return "differs"
        return "verified" if self.rows and not self.unverified else "not verified"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON; an infinite deviation is null."""
        rows = [
            {**asdict(row), "passed": row.passed, "deviation": row.deviation if math.isfinite(row.deviation) else None}
            for row in self.rows
        ]
        return {**asdict(self), "rows": rows, "verdict": self.verdict}

    def lines(self) -> list[str]:
        """Format the report as lines of text."""
        served = f"{self.model}: {self.family} on {self.device} in {self.precision}"
        lines = [served, *(f"  {name}: {note}" for name, note in self.notes.items()), ""]
        if self.rows:
            lines += [*_table(self.rows), ""]
        lines += [f"{each.output} was not compared: {each.reason}" for each in self.unverified]
        return [*lines, f"{self.verdict}{_why(self)}"]


def _why(report: Report) -> str:
    worst = max((row.deviation for row in report.rows), default=None)
    if report.verdict == "not verified" or worst is None:
        return ""
    return f": the largest deviation is {worst:.1e} in {report.precision}"


def _table(rows: tuple[Row, ...]) -> list[str]:
    head = ("OUTPUT", "ASKED", "ITEMS", "REFERENCE", "DEVIATION", "TOLERANCE", "")
    cells = [head, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _cells(row: Row) -> tuple[str, ...]:
    verdict = "ok" if row.passed else "DIFFERS"
    return (
        row.output,
        row.asked,
        str(row.items),
        row.reference,
        f"{row.deviation:.1e}",
        f"{row.tolerance:.0e}",
        f"{verdict}  {row.note}".rstrip(),
    )

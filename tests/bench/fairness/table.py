"""The table of attacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

HEAD = ("beside", "p50 over alone", "p99 over alone", "MB above rest, of", "the attacker got", "problems")


def row(outcome: Any) -> dict[str, Any]:
    """Make plain data of an outcome."""
    alone, beside = outcome.alone, outcome.beside
    return {
        "name": outcome.name,
        "p50": [alone.p50_ms, beside.p50_ms],
        "p99": [alone.p99_ms, beside.p99_ms],
        "grown": [outcome.grown, outcome.allowed],
        "answers": dict(outcome.answers),
        "problems": outcome.problems,
    }


def rows(found: Sequence[dict[str, Any]]) -> Iterator[tuple[object, ...]]:
    """Write the rows."""
    for each in found:
        grown, allowed = (size / 1e6 for size in each["grown"])
        answers = ", ".join(f"{count} × {status}" for status, count in sorted(each["answers"].items()))
        times = [_times(*each[part]) for part in ("p50", "p99")]
        yield each["name"], *times, f"{grown:.0f} of {allowed:.0f}", answers or "–", "; ".join(each["problems"]) or "✓"


def _times(alone: float, beside: float) -> str:
    return f"{beside / alone:.1f} ({alone:.1f} → {beside:.1f} ms)"

"""What a run found, as plain data that is saved after every step."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

Record = dict[str, Any]
"""One measurement: `server`, `kind`, `group`, `clients`, `format`, `repetition`, and the fields of `Measurement`."""


@dataclass(slots=True)
class Results:
    """Everything of one run. Blocks that were not measured are empty."""

    hardware: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, Any] = field(default_factory=dict)
    """By kind: how many, words and tokens."""
    commands: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each command line."""
    load: dict[str, float] = field(default_factory=dict)
    in_process: dict[str, Any] = field(default_factory=dict)
    ceilings: dict[str, Any] = field(default_factory=dict)
    runner: dict[str, Any] = field(default_factory=dict)
    kernels: list[Record] = field(default_factory=list)
    """`model`, `setting`, `runner`, `precision`, and `tokens_s` of each repetition."""
    grid: list[Record] = field(default_factory=list)
    formats: list[Record] = field(default_factory=list)
    starts: list[Record] = field(default_factory=list)
    """`server`, `repetition`, `stages_s`, `load_stages_s`, and memory in bytes."""
    accuracy: dict[str, Any] = field(default_factory=dict)
    scaling: dict[str, Any] = field(default_factory=dict)
    operations: dict[str, Any] = field(default_factory=dict)
    """By operation: units a second of SIE and of its library, and how far their answers are apart."""
    cluster: dict[str, Any] = field(default_factory=dict)
    """What a cluster adds to the server's latency, and what each of its processes uses."""
    fairness: list[Record] = field(default_factory=list)
    """By attack: the honest client's latencies, memory in bytes, and what went wrong."""
    problems: list[str] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Write `results.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Read `results.json`."""
        return cls(**json.loads((folder / "results.json").read_text()))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two servers: the median of the repetitions' own ratios, and their range."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}–{self.most:.2f})"


def choose(records: list[Record], **wanted: Any) -> list[Record]:
    """Pick the records with these values."""
    return [each for each in records if all(each[name] == value for name, value in wanted.items())]


def middle(records: list[Record], name: str) -> float | None:
    """Return the median of a field; None of no records."""
    values = [each[name] for each in records if each[name] is not None]
    return median(values) if values else None


def ratio(ours: list[Record], theirs: list[Record], name: str) -> Ratio | None:
    """Divide a field of ours by theirs, repetition by repetition; None where no repetition has both."""
    other = {each["repetition"]: each[name] for each in theirs}
    ratios = [each[name] / other[each["repetition"]] for each in ours if other.get(each["repetition"])]
    return Ratio(median(ratios), min(ratios), max(ratios)) if ratios else None


def ratio_of(ours: list[float], theirs: list[float]) -> Ratio:
    """Divide our figures by theirs, repetition by repetition."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return Ratio(median(ratios), min(ratios), max(ratios))

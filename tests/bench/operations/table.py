"""The table of the operations, from their results alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from tests.bench.page.results import ratio_of

HEAD = (
    "operation", "model", "served by", "SIE a second", "library", "its batch size", "its units a second",
    "SIE over it", "largest difference",
)  # fmt: skip


def rows(operations: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Write a row for each operation and batch size of its library."""
    for name, found in operations.items():
        ours = f"{median(found['ours']):,.1f} {found['unit']}"
        served = f"{found['runner']}, {found['precision']}"
        for size, rates in found["theirs"].items():
            own = ", its own" if int(size) == found["default_size"] else f", best of {_sizes(found)}"
            yield (
                name, found["model"], served, ours, found["library"], f"{size}{own}", f"{median(rates):,.1f}",
                ratio_of(found["ours"], rates), _difference(found["deviation"]),
            )  # fmt: skip


def _sizes(found: Mapping[str, Any]) -> str:
    return ", ".join(map(str, sorted(found["sizes_tried"])))


def _difference(deviation: Mapping[str, Any]) -> str:
    told = f"{deviation['largest']:.0e} of numbers with a deviation of {deviation['scale']:.0e}"
    if deviation["unequal"]:
        return f"{told}; {deviation['unequal']} of {deviation['compared']} entities on one side alone"
    return told
